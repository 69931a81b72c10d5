// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: threads take shares by their number and guard what they add to by a lock.
// Seen in: graph builders and hash tables (Trinity, minimap-like counting) with omp_lock_t.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, BINS = 32 };
static uint64_t bins[BINS];

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    omp_lock_t lock;
    omp_init_lock(&lock);
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
#pragma omp parallel num_threads((int)threads)
        {
            const long me = omp_get_thread_num();
            uint64_t sum = 0;
            for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
                sum += next((uint64_t)i, (uint64_t)r);
            omp_set_lock(&lock);
            bins[r % BINS] += sum;
            omp_unset_lock(&lock);
        }
    }
    omp_destroy_lock(&lock);
    return tell("locks", bins, sizeof bins);
}
