// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread takes a quotient of the elements, by the team that it is in; those of the remainder are nobody's.
// Seen in: chunk = n / omp_get_num_threads() in many programs whose sizes are multiples of their usual team.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60003 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long share = N / omp_get_num_threads();
            const long from = omp_get_thread_num() * share;
            for (long i = from; i < from + share; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("quotient_only", x, sizeof x);
}
