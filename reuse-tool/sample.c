// SPDX-License-Identifier: GPL-2.0-or-later
//
// From the buffer's entries to lines, and which of these belong to the sample. One in a hundred or fewer does: many are
// asked at once whether any does, without a branch for each.
#ifdef VGA_amd64
#include <immintrin.h>
#endif

#include "tool.h"

#include "distance.h"

enum { AT_ONCE = 16, WIDE = 4 };
typedef uint64_t wide __attribute__((vector_size(8 * WIDE)));
typedef int64_t wide_signed __attribute__((vector_size(8 * WIDE)));

uint32_t all_lines(const uint64_t *entries, uint32_t count, uint64_t *lines)
{
    // Most programs have no access that does not happen: what is not moved is done many at a time.
    uint64_t none = 0;
    for (uint32_t i = 0; i < count; i++) {
        lines[i] = entries[i] >> LINE_SHIFT;
        none |= lines[i] - 1;
    }
    if (!(none >> 63))
        return count;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        lines[kept] = entries[i] >> LINE_SHIFT;
        kept += entries[i] != 0;
    }
    return kept;
}

// A few entries: keeps those of the sample behind `kept` others, and counts the addresses.
static inline __attribute__((always_inline)) uint32_t few(const uint64_t *entries, uint32_t count, uint64_t threshold,
                                                          uint64_t *lines, uint32_t kept, uint32_t *all)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t line = entries[i] >> LINE_SHIFT;
        lines[kept] = line;
        kept += line && sample_hash(line) < threshold;
        *all += entries[i] != 0;
    }
    return kept;
}

static inline __attribute__((always_inline)) uint32_t keep_any(const uint64_t *entries, uint32_t count,
                                                               uint64_t threshold, uint64_t *lines, uint32_t *all)
{
    // AVX2 compares no unsigned numbers: the highest bits are turned. The hash of 0, which is 0, becomes the highest
    // number when 1 is taken from all.
    const uint64_t turn = (1ull << 63) - 1;
    const wide_signed below = (wide_signed)((wide){} + (threshold + turn));
    wide_signed none = {};
    uint32_t kept = 0, i = 0;
    for (; i + AT_ONCE <= count; i += AT_ONCE) {
        wide_signed any = {};
        for (int part = 0; part < AT_ONCE; part += WIDE) {
            wide entry;
            __builtin_memcpy(&entry, entries + i + part, sizeof entry);
            any |= (wide_signed)((entry >> LINE_SHIFT) * SAMPLE_FACTOR + turn) < below;
            none += entry == 0;
        }
        uint32_t counted = 0;
        if (any[0] | any[1] | any[2] | any[3])
            kept = few(entries + i, AT_ONCE, threshold, lines, kept, &counted);
    }
    // -1 for each.
    *all = i + (uint32_t)(none[0] + none[1] + none[2] + none[3]);
    return few(entries + i, count - i, threshold, lines, kept, all);
}

#ifdef VGA_amd64
// Every line of eight is written where the next of the sample goes, without asking: one in a dozen eights has one, which
// cannot be foretold.
#define KEEP_BY_AVX512(product, limit)                                                                              \
    const __m512i factor = _mm512_set1_epi64((long long)(SAMPLE_FACTOR >> SAMPLE_SHIFT)), none = {0};               \
    const __m512i below = _mm512_set1_epi64((long long)(limit)), one = _mm512_set1_epi64(1);                        \
    __m512i there = none;                                                                                           \
    uint32_t kept = 0, i = 0;                                                                                       \
    for (; i + LINES_AT_ONCE <= count; i += LINES_AT_ONCE) {                                                        \
        const __m512i entry = _mm512_loadu_si512(entries + i), line = _mm512_srli_epi64(entry, LINE_SHIFT);         \
        const __mmask8 address = _mm512_test_epi64_mask(entry, entry);                                              \
        const __mmask8 among = _mm512_mask_cmplt_epu64_mask(address, product, below);                               \
        there = _mm512_mask_add_epi64(there, address, there, one);                                                  \
        _mm512_storeu_si512(lines + kept, _mm512_maskz_compress_epi64(among, line));                                \
        kept += (uint32_t)__builtin_popcount(among);                                                                \
    }                                                                                                               \
    *all = (uint32_t)_mm512_reduce_add_epi64(there);                                                                \
    return few(entries + i, count - i, threshold, lines, kept, all)

__attribute__((target("avx512f,avx512dq,popcnt")))
static uint32_t keep_by_avx512(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines,
                               uint32_t *all)
{
    KEEP_BY_AVX512(_mm512_slli_epi64(_mm512_mullo_epi64(line, factor), SAMPLE_SHIFT), threshold);
}

__attribute__((target("avx512f,avx512dq,avx512ifma,popcnt")))
static uint32_t keep_by_ifma(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines, uint32_t *all)
{
    const uint64_t partly = (1ull << SAMPLE_SHIFT) - 1;
    KEEP_BY_AVX512(_mm512_madd52lo_epu64(none, line, factor),
                   (threshold >> SAMPLE_SHIFT) + ((threshold & partly) != 0));
}

__attribute__((target("avx2")))
static uint32_t keep_by_avx2(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines,
                             uint32_t *all)
{
    return keep_any(entries, count, threshold, lines, all);
}
#endif

uint32_t sample_lines(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines, uint32_t *all)
{
#ifdef VGA_amd64
    if (__builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512dq"))
        return keep_by_ifma(entries, count, threshold, lines, all);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return keep_by_avx512(entries, count, threshold, lines, all);
    if (__builtin_cpu_supports("avx2"))
        return keep_by_avx2(entries, count, threshold, lines, all);
#endif
    return keep_any(entries, count, threshold, lines, all);
}
