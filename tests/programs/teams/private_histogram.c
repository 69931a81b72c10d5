// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread counts into a histogram of its own in the region, and adds it to the shared one in a critical
// section. The same with any team, but nothing in the code says so.
// Seen in: image processing and radix sorts; FBGEMM's and PyTorch extensions' sorts with slots instead.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, BINS = 128 };
static uint64_t bins[BINS];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            uint64_t mine[BINS] = {0};
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++)
                mine[next((uint64_t)i, (uint64_t)r) % BINS]++;
#pragma omp critical
            for (int b = 0; b < BINS; b++)
                bins[b] += mine[b];
        }
    }
    return tell("private_histogram", bins, sizeof bins);
}
