// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a loop that the runtime hands out in shares that become smaller.
// Seen in: graph codes (GAP-like), whose vertices have very different degrees.
// expect: gcc=resizable clang=resizable
// flags: -O2; -O3
#include "teams.h"

enum { N = 1200 };
static double x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 8000); r > 0; r--) {
#pragma omp parallel for schedule(guided)
        for (int i = 0; i < N; i++) {
            double value = x[i];
            for (int k = i % 97; k >= 0; k--)
                value = 0.75 * value + 1.0 / (k + 1);
            x[i] = value;
        }
    }
    return tell("guided", x, sizeof x);
}
