// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: two loops of one region without a barrier between; the second uses of the first what the same thread made,
// which holds as both are cut alike by the team they run in.
// Seen in: NPB CG and LU, whose update loops follow one another with nowait.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 48000 };
static uint64_t x[N], y[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++)
                x[i] = next(x[i], (uint64_t)r);
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++)
                y[i] = next(y[i], x[i]);
        }
    }
    return tell("nowait", y, sizeof y);
}
