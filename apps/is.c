// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Integer sort: keys with a bell-shaped distribution into buckets, then a counting sort in each
// bucket. Scattered writes, no floating point; the buckets are of unlike size and taken from a
// queue (dynamic schedule).
//
// The keys are cut into CHUNKS whatever the number of threads, so that each pass is the same for
// any team. An iteration changes two keys, sorts all and checks: four regions.
//
// Verified each iteration, exactly: neighbours in order, and the same multiset of keys (sum of a
// 64-bit hash of each key before and after).
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { CHUNKS = 256, BUCKETS = 256, KEY_BITS = 20, KEYS_A_BUCKET = (1 << KEY_BITS) / BUCKETS };

static const struct app_spec spec = {
    .name = "is", .what = "integer bucket sort", .n_means = "keys", .n_min = 1024, .n_max = 1000000000,
    .classes = {{'T', 1L << 15, 10}, {'S', 1L << 20, 200}, {'M', 1L << 22, 220}, {'L', 1L << 23, 420},
                {'X', 1L << 25, 750}},
};

static long n;
static uint32_t *keys, *bucketed, *sorted;
static long (*place)[BUCKETS]; // of a chunk's keys in each bucket: first counts, then positions
static long bucket_start[BUCKETS + 1];
static uint64_t *partial, *partial2;

static long chunk_start(long c) { return n * c / CHUNKS; }
static uint64_t hash(uint32_t key) { return app_mix(key); }

static void count(void)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long c = 0; c < CHUNKS; c++) {
            long counts[BUCKETS] = {0};
            uint64_t sum = 0;
            for (long i = chunk_start(c); i < chunk_start(c + 1); i++) {
                counts[keys[i] / KEYS_A_BUCKET]++;
                sum += hash(keys[i]);
            }
            memcpy(place[c], counts, sizeof counts);
            partial[c] = sum;
        }
    }
}

// Counts become positions: bucket by bucket, within a bucket chunk by chunk.
static void find_places(void)
{
    long next = 0;
    for (long b = 0; b < BUCKETS; b++) {
        bucket_start[b] = next;
        for (long c = 0; c < CHUNKS; c++) {
            const long here = place[c][b];
            place[c][b] = next;
            next += here;
        }
    }
    bucket_start[BUCKETS] = next;
}

static void scatter(void)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long c = 0; c < CHUNKS; c++) {
            long next[BUCKETS];
            memcpy(next, place[c], sizeof next);
            for (long i = chunk_start(c); i < chunk_start(c + 1); i++)
                bucketed[next[keys[i] / KEYS_A_BUCKET]++] = keys[i];
        }
    }
}

static void sort_buckets(void)
{
    app.regions++; // the combined construct has no room for app_region()
#pragma omp parallel for schedule(dynamic)
    for (long b = 0; b < BUCKETS; b++) {
        uint32_t counts[KEYS_A_BUCKET] = {0};
        for (long i = bucket_start[b]; i < bucket_start[b + 1]; i++)
            counts[bucketed[i] % KEYS_A_BUCKET]++;
        uint32_t *next = sorted + bucket_start[b];
        for (uint32_t k = 0; k < KEYS_A_BUCKET; k++)
            for (uint32_t copies = counts[k]; copies; copies--)
                *next++ = (uint32_t)b * KEYS_A_BUCKET + k;
    }
}

static bool check(void)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long c = 0; c < CHUNKS; c++) {
            uint64_t sum = 0, misplaced = 0;
            for (long i = chunk_start(c); i < chunk_start(c + 1); i++) {
                sum += hash(sorted[i]);
                misplaced += i > 0 && sorted[i - 1] > sorted[i];
            }
            partial[c] -= sum;
            partial2[c] = misplaced;
        }
    }
    uint64_t difference = 0, misplaced = 0;
    for (long c = 0; c < CHUNKS; c++)
        difference += partial[c], misplaced += partial2[c];
    return difference == 0 && misplaced == 0;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    n = app.n;
    keys = app_alloc((size_t)n, sizeof *keys);
    bucketed = app_alloc((size_t)n, sizeof *bucketed);
    sorted = app_alloc((size_t)n, sizeof *sorted);
    place = app_alloc(CHUNKS, sizeof *place);
    partial = app_alloc(CHUNKS, sizeof *partial);
    partial2 = app_alloc(CHUNKS, sizeof *partial2);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) { // the mean of four uniform numbers of 16 bits, in KEY_BITS
            const uint64_t r = app_mix((uint64_t)i);
            const uint64_t sum = (r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48);
            keys[i] = (uint32_t)(sum << (KEY_BITS - 18));
            bucketed[i] = sorted[i] = 0;
        }
    }

    app_start();
    uint64_t result = 0;
    for (long it = 0; it < app.iterations; it++) {
        keys[app_mix((uint64_t)it) % (uint64_t)n] = (uint32_t)it % (1u << KEY_BITS);
        keys[app_mix(~(uint64_t)it) % (uint64_t)n] = (1u << KEY_BITS) - 1 - (uint32_t)it % (1u << KEY_BITS);
        count();
        find_places();
        scatter();
        if (app_corrupt_now(it))
            bucketed[n / 3] ^= 1;
        sort_buckets();
        app_check(check(), "iteration %ld: the keys are not sorted, or not the same", it);
        result = app_mix(result ^ sorted[app_mix((uint64_t)it) % (uint64_t)n]);
    }
    app_stop();
    return app_finish("%016llx", (unsigned long long)result);
}
