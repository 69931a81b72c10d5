// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a few different pieces of work side by side, handed out by the runtime.
// Seen in: FFmpeg-like filters and solvers that update independent fields. Right with any team.
// expect: gcc=rigid clang=resizable
#include "teams.h"

enum { N = 18000 };
static uint64_t x[N], y[N], z[N];

static void all(uint64_t *of, long r)
{
    for (long i = 0; i < N; i++)
        of[i] = next(of[i], (uint64_t)r);
}

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel sections
        {
#pragma omp section
            all(x, r);
#pragma omp section
            all(y, r + 1);
#pragma omp section
            all(z, r + 2);
        }
        for (long i = 0; i < N; i += 100)
            z[i] ^= x[i] + y[i];
    }
    return tell("sections", z, sizeof z);
}
