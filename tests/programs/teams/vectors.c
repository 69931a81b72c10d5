// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: loops that are for all threads and all lanes of vectors at once.
// Seen in: LULESH, miniAMR, mfem's kernels with "parallel for simd".
// expect: gcc=rigid clang=resizable
// flags: -O2; -O3
#include "teams.h"

enum { N = 120000 };
static float x[N], y[N];

int main(int argc, char **argv)
{
    for (int i = 0; i < N; i++)
        x[i] = (float)unit((uint64_t)i);
    for (long r = rounds_of(argc, argv, 15000); r > 0; r--) {
#pragma omp parallel for simd schedule(static)
        for (int i = 0; i < N; i++)
            y[i] = 0.5f * y[i] + x[i] * (1.0f - x[i]);
    }
    return tell("vectors", y, sizeof y);
}
