// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a thread's first call makes a cache in thread-local data and lets a table point to it; the main thread
// reads all caches through the table, also after their threads have gone.
// Seen in: OpenBLAS's buffers in thread-local data, PaddlePaddle pull 18265, pytorch pull 52815 (surplus threads end).
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, MOST = 4096 };
static __thread struct cache {
    uint64_t known, sum;
} cache;
static struct cache *volatile caches[MOST];
static int count;

static struct cache *own(void)
{
    if (!cache.known) {
        cache.known = 1;
        const int at = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
        if (at < MOST)
            caches[at] = &cache;
    }
    return &cache;
}

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            struct cache *mine = own();
            uint64_t sum = 0;
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                sum += next((uint64_t)i, (uint64_t)r);
            mine->sum += sum;
        }
    }
    uint64_t results[2] = {0, (uint64_t)count};
    for (int t = 0; t < count && t < MOST; t++)
        results[0] += caches[t]->sum;
    return tell("thread_local_cache", results, sizeof results);
}
