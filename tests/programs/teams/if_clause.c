// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: loops that are parallel only where there is enough to do.
// Seen in: casacore pull 95 (small sorts stay serial), OpenCV's and GraphicsMagick's thresholds.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 72000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
        const long n = r % 4 ? N : 500;
#pragma omp parallel for schedule(static) if (n > 1000)
        for (long i = 0; i < n; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("if_clause", x, sizeof x);
}
