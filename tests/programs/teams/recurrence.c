// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a private copy is carried on from one iteration to the next, and begins anew at each share's start.
// Seen in: strength-reduced loops (a value multiplied on instead of a power); the tutorial codes for geometric series.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 20000 };
static double x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
        double carried = 1.0 / (double)r;
#pragma omp parallel for schedule(static) firstprivate(carried)
        for (long i = 0; i < N; i++) {
            carried = 0.75 * carried + 0.25 * (double)(i % 7);
            x[i] = 0.5 * x[i] + carried;
        }
    }
    return tell("recurrence", x, sizeof x);
}
