// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each iteration calls a function of the same file that is not inlined.
// Seen in: any program of some size, such as chemistry codes' integrals; here with a loop within.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2
#include "teams.h"

enum { N = 1500 };
static double x[N];

static __attribute__((noinline)) double settled(double value, int at)
{
    for (int k = 0; k < 12; k++)
        value = 0.5 * (value + (at + 2.0) / value);
    return value;
}

int main(int argc, char **argv)
{
    for (int i = 0; i < N; i++)
        x[i] = 1 + i;
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < N; i++)
            x[i] = settled(x[i], i) + (double)r * 1e-6;
    }
    return tell("calls_function", x, sizeof x);
}
