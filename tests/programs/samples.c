// Every way in which the reuse tool looks for lines, and for those of a sample, against the rule: what it keeps, in which
// order, and how many addresses there were. A way that this processor lacks is named.
#include <stdio.h>
#include <string.h>

#include "../../reuse-tool/sample.c"

enum { MOST = 700 };
typedef uint32_t (*way)(const uint64_t *, uint32_t, uint64_t, uint64_t *, uint32_t *);

static uint64_t state = 1;
static uint64_t random_bits(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static uint32_t by_rule(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines, uint32_t *all)
{
    uint32_t kept = *all = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!entries[i])
            continue;
        ++*all;
        if (sample_hash(entries[i] >> LINE_SHIFT) < threshold)
            lines[kept++] = entries[i] >> LINE_SHIFT;
    }
    return kept;
}

static uint32_t all_by_rule(const uint64_t *entries, uint32_t count, uint64_t *lines)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (entries[i])
            lines[kept++] = entries[i] >> LINE_SHIFT;
    return kept;
}

static uint32_t plain(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines, uint32_t *all)
{
    return keep_any(entries, count, threshold, lines, all);
}

int main(void)
{
    struct {
        const char *name;
        way way;
        int is_there;
    } ways[] = {
        {"plain", plain, 1},
        {"chosen", sample_lines, 1},
#ifdef VGA_amd64
        {"AVX2", keep_by_avx2, __builtin_cpu_supports("avx2")},
        {"AVX-512", keep_by_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")},
        {"AVX-512 IFMA", keep_by_ifma, __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512dq")},
#endif
    };
    const uint64_t one_percent = 184467440737095516u;
    const uint64_t thresholds[] = {1, one_percent, one_percent & ~4095ull, 1ull << 63, ~0ull - 1, ~0ull};
    static uint64_t entries[MOST], wanted[MOST], found[MOST + LINES_AT_ONCE];
    uint64_t kept = 0;
    for (int round = 0; round < 3000; round++) {
        const uint32_t count = (uint32_t)(random_bits() % (MOST + 1));
        const uint64_t threshold = thresholds[round % (sizeof thresholds / sizeof *thresholds)];
        for (uint32_t i = 0; i < count; i++)
            entries[i] = round % 3 == 0 || random_bits() % 8 ? 64 + random_bits() % (round % 2 ? 1ull << 47 : 1 << 20) : 0;
        const uint32_t there = all_by_rule(entries, count, wanted);
        if (all_lines(entries, count, found) != there || memcmp(found, wanted, there * sizeof *wanted)) {
            printf("without a sample lines are wrong in round %d\n", round);
            return 1;
        }
        uint32_t all_wanted, all_found;
        const uint32_t how_many = by_rule(entries, count, threshold, wanted, &all_wanted);
        kept += how_many;
        for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (!ways[w].is_there)
                continue;
            if (ways[w].way(entries, count, threshold, found, &all_found) != how_many || all_found != all_wanted ||
                memcmp(found, wanted, how_many * sizeof *wanted)) {
                printf("%s is wrong in round %d\n", ways[w].name, round);
                return 1;
            }
        }
    }
    printf("samples: %llu lines kept", (unsigned long long)kept);
    for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++)
        printf(", %s %s", ways[w].name, ways[w].is_there ? "agrees" : "is not there");
    printf("\n");
    return 0;
}
