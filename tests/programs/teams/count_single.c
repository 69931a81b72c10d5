// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: one thread of a first region notes how many there are; later bare regions are cut by that.
// Seen in: OpenMS pull 8739 (buffers sized so in one region, used in the next), STREAM, many others.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60000, ROOM = 16 };
// Room for a team larger than was counted, which then overruns what it should have.
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    long threads = 0;
#pragma omp parallel
    {
#pragma omp single
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
    return tell("count_single", x, sizeof x);
}
