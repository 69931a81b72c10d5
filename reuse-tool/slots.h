// SPDX-License-Identifier: GPL-2.0-or-later
//
// Which lines were touched after which: time slots, one live slot a line. A line that is touched gives
// up the slot that it had and takes the next; how many lines were touched since is how many live slots
// come after. For distance.c alone; crates/reuse/src/slots.rs is the same.
#ifndef REUSE_SLOTS_H
#define REUSE_SLOTS_H

#include "distance.h"

enum {
    BLOCK_WORDS = 16, BLOCK_BITS = 10,  // 64-bit words and slots of a block
    TILE_BLOCKS = 8, TILE_BITS = 13,    // blocks and slots of a tile
    REGION_TILES = 8, REGION_BITS = 16, // tiles and slots of a region
    AREA_REGIONS = 32, AREA_BITS = 21,  // regions and slots of an area
    REGION = 1 << REGION_BITS,
};
#define NO_SLOT 0xffffffffu
#define MOST_SLOTS (1ull << 31)

struct slots {
    uint64_t *live;
    // Live slots of each word, block, tile, region, area.
    uint8_t *words;
    uint16_t *blocks, *tiles;
    uint32_t *regions, *areas;
    uint64_t room, next;
    uint32_t count;
};

static inline uint64_t area_count(uint64_t room) { return (room + (1ull << AREA_BITS) - 1) >> AREA_BITS; }

static void slots_empty(struct slots *s, uint64_t room)
{
    s->room = room;
    s->live = reuse_alloc(room / 8);
    s->words = reuse_alloc(room / 64);
    s->blocks = reuse_alloc((room >> BLOCK_BITS) * sizeof *s->blocks);
    s->tiles = reuse_alloc((room >> TILE_BITS) * sizeof *s->tiles);
    s->regions = reuse_alloc(area_count(room) * AREA_REGIONS * sizeof *s->regions);
    s->areas = reuse_alloc(area_count(room) * sizeof *s->areas);
}

static void slots_free(struct slots *s)
{
    void *all[] = {s->live, s->words, s->blocks, s->tiles, s->regions, s->areas};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        reuse_free(all[i]);
}

static void *slots_part(const void *from, uint64_t bytes)
{
    void *copy = reuse_alloc(bytes);
    reuse_copy(copy, from, bytes);
    return copy;
}

static void slots_copy(struct slots *s)
{
    s->live = slots_part(s->live, s->room / 8);
    s->words = slots_part(s->words, s->room / 64);
    s->blocks = slots_part(s->blocks, (s->room >> BLOCK_BITS) * sizeof *s->blocks);
    s->tiles = slots_part(s->tiles, (s->room >> TILE_BITS) * sizeof *s->tiles);
    s->regions = slots_part(s->regions, area_count(s->room) * AREA_REGIONS * sizeof *s->regions);
    s->areas = slots_part(s->areas, area_count(s->room) * sizeof *s->areas);
}

static inline uint32_t slot_take(struct slots *s)
{
    const uint64_t slot = s->next++;
    s->live[slot / 64] |= 1ull << (slot % 64);
    s->words[slot / 64]++;
    s->blocks[slot >> BLOCK_BITS]++;
    s->tiles[slot >> TILE_BITS]++;
    s->regions[slot >> REGION_BITS]++;
    s->areas[slot >> AREA_BITS]++;
    s->count++;
    return (uint32_t)slot;
}

typedef uint16_t lanes __attribute__((vector_size(16)));
typedef int32_t four __attribute__((vector_size(16)));
// From entry LANES - 1 - i on, the lanes after the one at i.
static const uint8_t AFTER_BYTE[2 * BLOCK_WORDS] __attribute__((aligned(32))) = {
    [BLOCK_WORDS] = 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
static const uint16_t AFTER_PAIR[2 * TILE_BLOCKS] __attribute__((aligned(32))) = {
    [TILE_BLOCKS] = 65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535};

static inline lanes lanes_at(const uint16_t *at)
{
    lanes all;
    __builtin_memcpy(&all, at, sizeof all);
    return all;
}

// Ends a slot; returns how many live ones come after it. Hardly anything in it branches: how far a slot
// is from the end of its block cannot be foretold.
static inline uint32_t slot_give_up(struct slots *s, uint32_t slot)
{
    const uint64_t word = slot / 64, block = slot >> BLOCK_BITS, tile = slot >> TILE_BITS,
                   region = slot >> REGION_BITS, area = slot >> AREA_BITS;
    uint32_t after = (uint32_t)__builtin_popcountll(s->live[word] >> (slot % 64) >> 1);
    // Bytes up to 64, two of them added up to 128; then pairs of bytes.
    uint64_t low, high, low_mask, high_mask;
    const uint8_t *words = s->words + block * BLOCK_WORDS, *mask = AFTER_BYTE + (BLOCK_WORDS - 1) - word % BLOCK_WORDS;
    __builtin_memcpy(&low, words, 8);
    __builtin_memcpy(&high, words + 8, 8);
    __builtin_memcpy(&low_mask, mask, 8);
    __builtin_memcpy(&high_mask, mask + 8, 8);
    const uint64_t bytes = (low & low_mask) + (high & high_mask), even = 0x00ff00ff00ff00ffull;
    const uint64_t pairs = (bytes & even) + (bytes >> 8 & even);
    const lanes sum = (lanes_at(s->blocks + tile * TILE_BLOCKS) &
                       lanes_at(AFTER_PAIR + (TILE_BLOCKS - 1) - block % TILE_BLOCKS)) +
                      (lanes_at(s->tiles + region * REGION_TILES) &
                       lanes_at(AFTER_PAIR + (REGION_TILES - 1) - tile % REGION_TILES));
    uint64_t halves[2];
    __builtin_memcpy(halves, &sum, sizeof halves);
    // A region's slots but this one are fewer than 2^16: sums fit in the lanes' width.
    after += (uint32_t)((halves[0] + halves[1] + pairs) * 0x0001000100010001ull >> 48);
    if (s->next > REGION) {
        // All regions of the area, those up to this one left out.
        const uint64_t first = area * AREA_REGIONS, used = (s->next + REGION - 1) >> REGION_BITS;
        const uint64_t end = used - first < AREA_REGIONS ? used : first + AREA_REGIONS;
        const int32_t own = (int32_t)region;
        four index = {(int32_t)first, (int32_t)first + 1, (int32_t)first + 2, (int32_t)first + 3}, all = {0};
        for (uint64_t r = first; r < end; r += 4) {
            four counts;
            __builtin_memcpy(&counts, s->regions + r, sizeof counts);
            all += counts & (index > own);
            index += 4;
        }
        after += (uint32_t)(all[0] + all[1] + all[2] + all[3]);
        const uint64_t areas = area_count(s->next);
        for (uint64_t a = area + 1; a < areas; a++)
            after += s->areas[a];
    }
    s->live[word] &= ~(1ull << (slot % 64));
    s->words[word]--;
    s->blocks[block]--;
    s->tiles[tile]--;
    s->regions[region]--;
    s->areas[area]--;
    s->count--;
    return after;
}

static inline void slot_prefetch(const struct slots *s, uint32_t slot)
{
    __builtin_prefetch(&s->live[slot / 64]);
    __builtin_prefetch(&s->words[slot / 64]);
}

// Of `count` slots, how many lie in the part of this size.
static uint64_t part(uint64_t count, uint64_t at, uint64_t size)
{
    return count <= at * size ? 0 : count - at * size < size ? count - at * size : size;
}

// Moves the live slots together, and makes more if over half are live; `numbers` are those that
// somebody holds.
static void slots_make_room(struct slots *s, uint32_t *numbers, uint64_t held)
{
    struct slots old = *s;
    const uint64_t words = old.room / 64;
    uint32_t *before = reuse_alloc(words * sizeof *before), sum = 0;
    for (uint64_t w = 0; w < words; w++) {
        before[w] = sum;
        sum += old.words[w];
    }
    const uint64_t room = old.count > old.room / 2 ? old.room * 2 : old.room, count = old.count;
    if (room > MOST_SLOTS)
        reuse_fail("more than 2^30 distinct lines (64 GiB) cannot be told apart: use a sample");
    slots_empty(s, room);
    for (uint64_t w = 0; w << 6 < count; w++) {
        const uint64_t bits = part(count, w, 64);
        s->live[w] = ~0ull >> (64 - bits);
        s->words[w] = (uint8_t)bits;
    }
    for (uint64_t b = 0; b << BLOCK_BITS < count; b++)
        s->blocks[b] = (uint16_t)part(count, b, 1 << BLOCK_BITS);
    for (uint64_t t = 0; t << TILE_BITS < count; t++)
        s->tiles[t] = (uint16_t)part(count, t, 1 << TILE_BITS);
    for (uint64_t r = 0; r << REGION_BITS < count; r++)
        s->regions[r] = (uint32_t)part(count, r, REGION);
    for (uint64_t a = 0; a << AREA_BITS < count; a++)
        s->areas[a] = (uint32_t)part(count, a, 1 << AREA_BITS);
    s->next = count;
    for (uint64_t i = 0; i < held; i++) {
        if (numbers[i] == NO_SLOT)
            continue;
        const uint32_t word = numbers[i] / 64;
        numbers[i] = before[word] + (uint32_t)__builtin_popcountll(old.live[word] & ((1ull << (numbers[i] % 64)) - 1));
    }
    slots_free(&old);
    reuse_free(before);
}

#endif
