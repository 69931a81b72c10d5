// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a count of all threads to which each adds one of its own beside its share.
// Seen in: statistics that count boundaries between shares, or buffers, beside elements.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    uint64_t totals = 0;
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
        long total = 0;
#pragma omp parallel
        {
            long own = 0;
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++) {
                x[i] = next(x[i], (uint64_t)r);
                own += (long)(x[i] >> 60);
            }
            own += 1;
#pragma omp atomic
            total += own;
        }
        totals = next(totals, (uint64_t)total);
    }
    return tell("sum_and_one", &totals, sizeof totals);
}
