// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: one region a time step, and in it several loops with the barriers between them.
// Seen in: llnl/LULESH's LagrangeNodal; NPB SP and BT (a region that holds the phases of a step).
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2
#include "teams.h"

enum { N = 12000 };
static double force[N], speed[N], at[N];

int main(int argc, char **argv)
{
    for (long i = 0; i < N; i++)
        at[i] = unit((uint64_t)i);
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel
        {
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                force[i] = at[i ? i - 1 : N - 1] - 2 * at[i] + at[i < N - 1 ? i + 1 : 0];
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                speed[i] = 0.99 * speed[i] + 0.1 * force[i];
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                at[i] += 0.1 * speed[i];
        }
    }
    return tell("time_step", at, sizeof at);
}
