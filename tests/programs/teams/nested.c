// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a team of two, each the master of a team of two; both numbers say which quarter a thread does.
// Seen in: ROSS-like and climate codes with two levels; kokkos/kokkos issue 1082 (partitions).
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 12000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    omp_set_max_active_levels(2);
    for (long r = rounds_of(argc, argv, 2000); r > 0; r--) {
#pragma omp parallel num_threads(2)
        {
            const long outer = omp_get_thread_num();
#pragma omp parallel num_threads(2)
            {
                const long quarter = 2 * outer + omp_get_thread_num();
                for (long i = N * quarter / 4; i < N * (quarter + 1) / 4; i++)
                    x[i] = next(x[i], (uint64_t)r);
            }
        }
    }
    return tell("nested", x, sizeof x);
}
