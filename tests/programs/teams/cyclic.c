// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a bare region whose threads take every n-th element, by the team that they are in.
// Seen in: h2oai/datatable's strided loops, sparse solvers' cyclic rows. Right with any team.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        for (long i = omp_get_thread_num(); i < N; i += omp_get_num_threads())
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("cyclic", x, sizeof x);
}
