// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the master of a first region notes how many threads there are; later bare regions are cut by that.
// Seen in: programs that write the number into their log and go on using it.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, ROOM = 16 };
// Room for a team larger than was counted, which then overruns what it should have.
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    long threads = 0;
#pragma omp parallel
    {
#pragma omp master
        threads = omp_get_num_threads();
    }
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < ROOM * N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("count_master", x, sizeof x);
}
