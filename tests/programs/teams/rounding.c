// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the first thread rounds up from its second region on; the others were made before and round to nearest.
// Seen in: interval arithmetic (CGAL, boost.interval), climate codes that set flush-to-zero after start-up.
// expect: gcc=rigid clang=rigid
#include <fenv.h>

#include "teams.h"

enum { N = 60000 };
static double x[N];

int main(int argc, char **argv)
{
    for (long r = 0, rounds = rounds_of(argc, argv, 16000); r < rounds; r++) {
        if (r == 1)
            fesetround(FE_UPWARD);
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = x[i] / 3 + 1.0 / (double)(i + r % 7 + 3);
    }
    fesetround(FE_TONEAREST);
    return tell("rounding", x, sizeof x);
}
