// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the program remembers its first team, and ends with a message when a later one differs.
// Seen in: cp2k/dbcsr issue 705: "Thread number has changed"; kokkos/kokkos issue 104 asks for such an error.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    int threads = 0;
#pragma omp parallel
    {
#pragma omp master
        threads = omp_get_num_threads();
    }
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            if (omp_get_num_threads() != threads) {
                fprintf(stderr, "abort_on_change: the number of threads has changed\n");
                abort();
            }
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("abort_on_change", x, sizeof x);
}
