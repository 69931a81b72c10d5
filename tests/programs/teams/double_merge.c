// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread's sum of doubles goes into a slot of its own; the main thread adds the slots in order, which is
// the same every time as long as the team is.
// Seen in: proximafusion/vmecpp pull 763, simsopt issue 403: made so to be reproducible with a given team.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, MOST = 1024 };
static double x[N], y[N], parts[MOST];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        x[i] = unit(i) - 0.5, y[i] = unit(N + i);
    double all = 0;
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
        int team = 1;
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), threads = omp_get_num_threads();
            double sum = 0;
            for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
                sum += x[i] * y[i];
            parts[me % MOST] = sum;
            if (me == 0)
                team = (int)threads;
        }
        double sum = 0;
        for (int t = 0; t < team && t < MOST; t++)
            sum += parts[t];
        all = 0.5 * all + sum;
        y[r % N] += 1e-3;
    }
    return tell("double_merge", &all, sizeof all);
}
