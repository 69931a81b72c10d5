// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a pipeline: each thread has some columns, and begins a row when its left neighbour's flag says that it has
// done its part of it; how many columns a thread has was settled at the start.
// Seen in: NAS parallel benchmarks, LU: sync_left and sync_right; Gauss-Seidel solvers' wavefronts.
// expect: gcc=rigid clang=rigid
#include <sched.h>

#include "teams.h"

enum { ROWS = 40, N = 512, MOST = 1024, LINE = 16 };
static uint64_t x[ROWS][N + 1];
static int done[MOST][LINE];

int main(int argc, char **argv)
{
    const int threads = omp_get_max_threads() < MOST ? omp_get_max_threads() : MOST;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
        for (int t = 0; t < threads; t++)
            done[t][0] = 0;
#pragma omp parallel num_threads(threads)
        {
            const int me = omp_get_thread_num();
            const long from = 1 + (long)N * me / threads, to = 1 + (long)N * (me + 1) / threads;
            for (int row = 1; row < ROWS; row++) {
                while (me > 0 && __atomic_load_n(&done[me - 1][0], __ATOMIC_ACQUIRE) < row)
                    sched_yield();
                for (long j = from; j < to; j++)
                    x[row][j] = next(x[row - 1][j] + x[row][j - 1], (uint64_t)r);
                __atomic_store_n(&done[me][0], row, __ATOMIC_RELEASE);
            }
        }
    }
    return tell("pipeline", x, sizeof x);
}
