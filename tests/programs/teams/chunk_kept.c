// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a chunk's length comes from an earlier team; later threads start at their number times the chunk.
// Seen in: LAMMPS's loop_setup_thr (1 + n / threads each), determinant fillers of quantum chemistry codes.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, ROOM = 16 };
// Room for a team larger than was counted, which then overruns what it should have.
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    long threads = 1, chunk = N;
#pragma omp parallel
    {
#pragma omp single
        {
            threads = omp_get_num_threads();
            chunk = (N + threads - 1) / threads;
        }
    }
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = chunk * me; i < chunk * (me + 1) && i < (me < threads ? N : ROOM * N); i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("chunk_kept", x, sizeof x);
}
