// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a function asks whether it is in a parallel region, and takes another algorithm if not; a region of one
// thread is none in that sense.
// Seen in: FEDEM's SPRMatrix, NCO's arithmetic, timers of tensor codes; OpenBLAS asks so before it makes threads.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 20000 };
static uint64_t x[N];

static __attribute__((noinline)) uint64_t kernel(uint64_t value, uint64_t r)
{
    return omp_in_parallel() ? next(value, r) : next(value, r) ^ 1;
}

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 6000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = kernel(x[i], (uint64_t)r);
    }
    return tell("in_parallel", x, sizeof x);
}
