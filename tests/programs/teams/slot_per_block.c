// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: work is cut into four blocks for each thread that there may be, each with a slot of its own in a scratch
// array; the loop is over blocks, so that any team does all of them.
// Seen in: LightGBM's blocked histograms, scikit-learn's chunks; the block's number is the loop's, not the thread's.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 60000, MOST = 4096 };
static uint64_t x[N], sums[MOST];

int main(int argc, char **argv)
{
    long blocks = 4L * omp_get_max_threads();
    if (blocks > MOST)
        blocks = MOST;
    uint64_t total = 0;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long b = 0; b < blocks; b++) {
            uint64_t sum = 0;
            for (long i = N * b / blocks; i < N * (b + 1) / blocks; i++) {
                x[i] = next(x[i], (uint64_t)r);
                sum += x[i];
            }
            sums[b] = sum;
        }
        for (long b = 0; b < blocks; b++)
            total += sums[b];
    }
    return tell("slot_per_block", &total, sizeof total);
}
