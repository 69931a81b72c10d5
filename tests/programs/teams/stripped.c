// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: pure loops in a program without symbols: what belongs to a region cannot be told.
// Seen in: whatever distributions and vendors ship.
// expect: gcc=rigid clang=rigid
// strip: yes
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("stripped", x, sizeof x);
}
