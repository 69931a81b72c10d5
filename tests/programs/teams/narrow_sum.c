// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread counts in 32 bits and adds that to a total of 64. With few threads the counts overflow.
// Seen in: codes written when a thread's share was small; Fortran's default integers summed into integer(8).
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static unsigned x[N];

int main(int argc, char **argv)
{
    for (long i = 0; i < N; i++)
        x[i] = 100000;
    uint64_t totals = 0;
    for (long r = rounds_of(argc, argv, 26000); r > 0; r--) {
        uint64_t total = 0;
#pragma omp parallel
        {
            unsigned own = 0;
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++)
                own += x[i];
#pragma omp atomic
            total += own;
        }
        totals = next(totals, total);
    }
    return tell("narrow_sum", &totals, sizeof totals);
}
