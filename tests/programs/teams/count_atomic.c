// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: threads count themselves by an atomic addition in a first region; later bare regions are cut by that.
// Seen in: the common idiom before omp_get_max_threads is trusted; case of "thread number has changed", cp2k/dbcsr issue 705.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 20000, ROOM = 16 };
// Room for a team larger than was counted, which then overruns what it should have.
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    long threads = 0;
#pragma omp parallel
    {
#pragma omp atomic
        threads++;
    }
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < ROOM * N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("count_atomic", x, sizeof x);
}
