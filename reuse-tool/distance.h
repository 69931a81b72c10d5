// SPDX-License-Identifier: GPL-2.0-or-later
//
// Stack reuse distances: depths of accesses in the stack of all lines, most recent first (1: the same
// line again). The same engine as crates/reuse, in C; tests/tests/reuse.rs holds them to each other.
#ifndef REUSE_DISTANCE_H
#define REUSE_DISTANCE_H

#include <stdint.h>

// Bins: depths below 128 have one each, then 64 for every doubling.
enum { BINS = 3520, GROUPS = 16 };

// Lines whose hash is below a threshold are sampled; sample.c computes the same of many at once. The hash is the lower 52
// bits of a product, which AVX-512 multiplies in one step, at the upper end of 64.
enum { SAMPLE_SHIFT = 12 };
#define SAMPLE_FACTOR (0x9e3779b97f4a7ull << SAMPLE_SHIFT)
static inline uint64_t sample_hash(uint64_t line) { return line * SAMPLE_FACTOR; }

// Counts in units of 1/SAMPLE_UNIT accesses where there is a sample.
#define SAMPLE_UNIT 1024

struct engine;

// Who counts: a thread, the whole program, its instructions.
struct counter {
    struct engine *engine;
    uint64_t *bins;     // BINS for each group
    uint64_t *first;    // first touches of each group
    uint64_t accesses;  // all, in the sample or not
    uint64_t threshold; // 0: everything is looked at, exactly
    double scale;       // 2^64 / threshold
    uint64_t weight;    // of an access of the sample, in units
    uint32_t near[16];  // the bins of the first depths in the sample, which are those of its short list
    uint32_t most;      // lines in the sample at a time; 0: as many as come
    uint64_t (*heap)[2]; // hashes and lines of the sample, the highest hash first; only with `most`
    uint32_t heap_count;
};

struct counter *counter_new(uint64_t threshold, uint32_t most);
struct counter *counter_copy(const struct counter *from);
void counter_free(struct counter *counter);

// Accesses to lines, in order. With a sample they are those of `all` that may be in it.
void counter_add(struct counter *counter, const uint64_t *lines, uint32_t count, uint64_t all);

// `times` more accesses to the line that came last.
void counter_again(struct counter *counter, uint64_t line, uint32_t times);

// From the program that this is linked into. Memory comes zeroed.
void *reuse_alloc(uint64_t bytes);
void reuse_free(void *memory);
void reuse_copy(void *to, const void *from, uint64_t bytes);
void reuse_fail(const char *why) __attribute__((noreturn));

#endif
