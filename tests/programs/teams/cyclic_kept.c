// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: threads take every n-th element, with an n that was asked for once.
// Seen in: tutorial codes for pi and for sieves that set the stride outside.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, ROOM = 1 };
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = me; i < N; i += threads)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("cyclic_kept", x, sizeof x);
}
