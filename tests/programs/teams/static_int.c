// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a static loop over an array of integers, no more.
// Seen in: the OpenMP STREAM-like kernels of every suite; llnl/LULESH, most of its loops.
// expect: gcc=resizable clang=rigid
// flags: -O2; -O3
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)(i + r));
    }
    return tell("static_int", x, sizeof x);
}
