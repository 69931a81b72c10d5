// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What the programs here share: how much they do, numbers that depend on their index alone, and a hash of what came
// out, which is all that they print.
#ifndef TEAMS_H
#define TEAMS_H
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How many rounds the scale on the command line stands for.
static inline long rounds_of(int argc, char **argv, long at_scale_one)
{
    const long rounds = (long)((argc > 1 ? atof(argv[1]) : 1) * (double)at_scale_one);
    return rounds > 1 ? rounds : 1;
}

static inline uint64_t word(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    return i ^ i >> 31;
}

// From 0 to 1.
static inline double unit(uint64_t i) { return (double)(word(i) >> 11) / 9007199254740992.0; }

// What becomes of a number in a round: a round that is left out, or done twice, shows in every later one.
static inline uint64_t next(uint64_t x, uint64_t i)
{
    x = x * 0xd1342543de82ef95u + i;
    return x ^ x >> 29;
}

static inline int tell(const char *name, const void *results, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)results;
    uint64_t hash = size, part = 0;
    for (size_t i = 0; i < size; i += sizeof part) {
        memcpy(&part, bytes + i, size - i < sizeof part ? size - i : sizeof part);
        hash = next(hash, part);
    }
    printf("%s %016llx\n", name, (unsigned long long)hash);
    return 0;
}
#endif
