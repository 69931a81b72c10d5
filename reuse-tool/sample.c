// SPDX-License-Identifier: GPL-2.0-or-later
//
// Which addresses of the buffer belong to lines of the sample. One in a hundred or fewer does. AVX-512 can put these
// side by side without asking; otherwise many are asked at once whether any does, without a branch for each.
#ifdef VGA_amd64
#include <immintrin.h>
#endif

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

static inline __attribute__((always_inline)) uint32_t keep_any(uint64_t *entries, uint32_t count, uint64_t threshold)
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
__attribute__((target("avx512f,avx512dq")))
static uint32_t keep_by_avx512(uint64_t *entries, uint32_t count, uint64_t threshold)
{
    const __m512i factor = _mm512_set1_epi64((long long)SAMPLE_FACTOR), below = _mm512_set1_epi64((long long)threshold);
    uint32_t kept = 0, i = 0;
    // What is written lies in what was read: there are no more kept than read.
    for (; i + 8 <= count; i += 8) {
        const __m512i line = _mm512_srli_epi64(_mm512_loadu_si512(entries + i), LINE_SHIFT);
        const __mmask8 among = _mm512_cmplt_epu64_mask(_mm512_mullo_epi64(line, factor), below);
        _mm512_storeu_si512(entries + kept, _mm512_maskz_compress_epi64(among, line));
        kept += (uint32_t)__builtin_popcount(among);
    }
    return keep(entries, i, count, kept, threshold);
}

__attribute__((target("avx2")))
static uint32_t keep_by_avx2(uint64_t *entries, uint32_t count, uint64_t threshold)
{
    return keep_any(entries, count, threshold);
}
#endif

uint32_t sample_lines(uint64_t *entries, uint32_t count, uint64_t threshold)
{
#ifdef VGA_amd64
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return keep_by_avx512(entries, count, threshold);
    if (__builtin_cpu_supports("avx2"))
        return keep_by_avx2(entries, count, threshold);
#endif
    return keep_any(entries, count, threshold);
}
