// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread's least element and its place go into slots for all threads that there may be; the main thread
// looks through all slots, also through those that no thread wrote this time.
// Seen in: llnl/LULESH pull 15: CalcCourantConstraintForElems; Kokkos issue 8097 (places of equal elements).
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const int threads = omp_get_max_threads();
    uint64_t *least = (uint64_t *)calloc((size_t)threads, sizeof *least);
    long *where = (long *)calloc((size_t)threads, sizeof *where);
    uint64_t results[2] = {0, 0};
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const int me = omp_get_thread_num();
            uint64_t smallest = UINT64_MAX;
            long at = -1;
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++) {
                x[i] = next(x[i], (uint64_t)r);
                // Of equals the last one.
                if (x[i] >> 44 <= smallest)
                    smallest = x[i] >> 44, at = i;
            }
            least[me] = smallest, where[me] = at;
        }
        int best = 0;
        for (int t = 1; t < threads; t++)
            if (least[t] < least[best])
                best = t;
        results[0] = next(results[0], least[best]), results[1] = next(results[1], (uint64_t)where[best]);
    }
    free(least), free(where);
    return tell("least_and_where", results, sizeof results);
}
