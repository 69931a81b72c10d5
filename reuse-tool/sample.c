// SPDX-License-Identifier: GPL-2.0-or-later
//
// Which addresses of the buffer belong to lines of the sample. One in a hundred or fewer does, so many are asked at
// once whether any does, without a branch for each.
#include "tool.h"

#include "distance.h"

enum { AT_ONCE = 16, WIDE = 4 };
typedef uint64_t wide __attribute__((vector_size(8 * WIDE)));
typedef int64_t wide_signed __attribute__((vector_size(8 * WIDE)));

// Keeps the lines of [from, count), behind `kept` others; returns how many there are then.
static inline uint32_t keep(uint64_t *entries, uint32_t from, uint32_t count, uint32_t kept, uint64_t threshold)
{
    for (uint32_t i = from; i < count; i++) {
        const uint64_t line = entries[i] >> LINE_SHIFT;
        entries[kept] = line;
        kept += sample_hash(line) < threshold;
    }
    return kept;
}

static inline __attribute__((always_inline)) uint32_t sample_by(uint64_t *entries, uint32_t count, uint64_t threshold)
{
    // AVX2 compares no unsigned numbers: the highest bits are turned.
    const uint64_t turn = 1ull << 63;
    const wide_signed below = (wide_signed)((wide){} + (threshold ^ turn));
    uint32_t kept = 0, i = 0;
    for (; i + AT_ONCE <= count; i += AT_ONCE) {
        wide_signed any = {};
        for (int part = 0; part < AT_ONCE; part += WIDE) {
            wide entry;
            __builtin_memcpy(&entry, entries + i + part, sizeof entry);
            any |= (wide_signed)(((entry >> LINE_SHIFT) * SAMPLE_FACTOR) ^ turn) < below;
        }
        if (any[0] | any[1] | any[2] | any[3])
            kept = keep(entries, i, i + AT_ONCE, kept, threshold);
    }
    return keep(entries, i, count, kept, threshold);
}

#ifdef VGA_amd64
__attribute__((target("avx512f,avx512dq,avx512vl")))
static uint32_t sample_avx512(uint64_t *entries, uint32_t count, uint64_t threshold)
{
    return sample_by(entries, count, threshold);
}

__attribute__((target("avx2")))
static uint32_t sample_avx2(uint64_t *entries, uint32_t count, uint64_t threshold)
{
    return sample_by(entries, count, threshold);
}
#endif

uint32_t sample_lines(uint64_t *entries, uint32_t count, uint64_t threshold)
{
#ifdef VGA_amd64
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return sample_avx512(entries, count, threshold);
    if (__builtin_cpu_supports("avx2"))
        return sample_avx2(entries, count, threshold);
#endif
    return sample_by(entries, count, threshold);
}
