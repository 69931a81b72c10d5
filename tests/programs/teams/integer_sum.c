// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: loops that count: a sum of integers over all threads.
// Seen in: graph codes' numbers of changed vertices; NPB IS's checks. Integers sum to the same in any order; how clang
// combines them looks like any other reduction.
// expect: gcc=resizable clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    long counts[2] = {0, 0};
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
        long set = 0;
#pragma omp parallel for reduction(+ : set)
        for (long i = 0; i < N; i++) {
            x[i] = next(x[i], (uint64_t)r);
            set += (long)(x[i] >> 60);
        }
        counts[0] += set, counts[1] = counts[1] * 31 + set;
    }
    return tell("integer_sum", counts, sizeof counts);
}
