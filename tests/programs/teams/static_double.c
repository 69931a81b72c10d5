// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: static loops over arrays of doubles, each element from the elements of its place.
// Seen in: hypre-space/hypre's vector kernels (axpy, scale); NPB CG.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 20000 };
static double x[N], y[N];

int main(int argc, char **argv)
{
    for (long i = 0; i < N; i++)
        x[i] = unit((uint64_t)i), y[i] = unit((uint64_t)i + N);
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
        const double a = 1.0 / (double)(r + 1);
#pragma omp parallel for
        for (long i = 0; i < N; i++)
            y[i] = 0.5 * y[i] + a * x[i] * (1.0 - y[i]);
    }
    return tell("static_double", y, sizeof y);
}
