// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: counters that all threads raise by atomic additions within the loop.
// Seen in: bucket counts of sorts and graph builders. Integers: the same in any order.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 12000, BINS = 1024 };
static uint64_t x[N], bins[BINS];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++) {
            x[i] = next(x[i], (uint64_t)(i + r));
#pragma omp atomic
            bins[x[i] >> 54]++;
        }
    }
    return tell("atomic_histogram", bins, sizeof bins);
}
