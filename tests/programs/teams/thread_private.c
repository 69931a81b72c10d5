// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: threadprivate totals that each thread keeps from region to region, and that a last region gathers.
// Seen in: PrincetonUniversity/athena-public-version issue 28 (random numbers), openmc pull 371, Fortran COMMON blocks.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 20000 };
static uint64_t total, last;
#pragma omp threadprivate(total, last)

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++) {
            last = next(last, (uint64_t)(i + r));
            total += last;
        }
    }
    uint64_t all = 0;
#pragma omp parallel
    {
#pragma omp critical
        all += total;
    }
    return tell("thread_private", &all, sizeof all);
}
