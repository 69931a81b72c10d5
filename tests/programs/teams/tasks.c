// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: tasks that use the buffer of whichever thread runs them.
// Seen in: GraphBLAS-like and tree codes (PEPC, ExaFMM) with a work space for each thread.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { TASKS = 40, N = 400, MOST = 1024, LINE = 8 };
static uint64_t sums[MOST][LINE];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
#pragma omp single
            for (long t = 0; t < TASKS; t++) {
#pragma omp task firstprivate(t)
                {
                    uint64_t sum = 0;
                    for (long i = 0; i < N; i++)
                        sum += next((uint64_t)(t * N + i), (uint64_t)r);
                    sums[omp_get_thread_num() % MOST][0] += sum;
                }
            }
        }
    }
    uint64_t all = 0;
    for (int t = 0; t < MOST; t++)
        all += sums[t][0];
    return tell("tasks", &all, sizeof all);
}
