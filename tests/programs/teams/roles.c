// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: thread 0 reads the next block and writes out the last one while the others compute; with one thread nobody
// computes.
// Seen in: codes that overlap MPI with computation (master communicates, MPI_THREAD_FUNNELED), video tools.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 8000 };
static uint64_t blocks[2][N], out;

int main(int argc, char **argv)
{
    const long rounds = rounds_of(argc, argv, 10000);
    for (long r = 0; r < rounds; r++) {
        uint64_t *now = blocks[r % 2], *other = blocks[1 - r % 2];
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), workers = omp_get_num_threads() - 1;
            if (me == 0) {
                for (long i = 0; i < N; i++) {
                    out += other[i];
                    other[i] = (uint64_t)(i + r);
                }
            } else {
                for (long i = N * (me - 1) / workers; i < N * me / workers; i++)
                    now[i] = next(next(now[i], (uint64_t)r), 5);
            }
        }
    }
    return tell("roles", &out, sizeof out);
}
