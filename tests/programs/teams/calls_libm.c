// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each iteration calls functions of the mathematics library.
// Seen in: finufft's kernels, option pricing (PARSEC blackscholes has a loop like that).
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include <math.h>

#include "teams.h"

enum { N = 1200 };
static double x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < N; i++)
            x[i] = sin(x[i] + i) + exp(-x[i] * x[i]) * pow(1.5, x[i]);
    }
    return tell("calls_libm", x, sizeof x);
}
