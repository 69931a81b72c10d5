// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the loop computes side by side and appends its results in the order of the iterations.
// Seen in: writers of sorted output (aligners, OpenMS), simsopt issue 403's first remedy.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 400 };
static uint64_t list[N];

int main(int argc, char **argv)
{
    uint64_t results = 0;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
        long count = 0;
#pragma omp parallel for ordered schedule(static, 40)
        for (long i = 0; i < N; i++) {
            uint64_t value = (uint64_t)(i + r);
            for (int k = 0; k < 30; k++)
                value = next(value, (uint64_t)k);
#pragma omp ordered
            if (value % 3)
                list[count++] = value;
        }
        for (long i = 0; i < count; i++)
            results = next(results, list[i]);
    }
    return tell("in_order", &results, sizeof results);
}
