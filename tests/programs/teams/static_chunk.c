// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a static loop that is dealt out in small chunks in turn.
// Seen in: LU decompositions (block-cyclic), hypre issue 467's proposed fix. Right with any team.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel for schedule(static, 64)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("static_chunk", x, sizeof x);
}
