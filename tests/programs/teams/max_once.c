// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the most threads are asked for once; bare regions are cut by that.
// Seen in: llnl/RAJA issues 34 and 37 (forall over segments), DIPlib issue 191, LAMMPS's comm->nthreads.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60000, ROOM = 16 };
// Room for a team larger than was counted, which then overruns what it should have.
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < ROOM * N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("max_once", x, sizeof x);
}
