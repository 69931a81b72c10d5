// SPDX-License-Identifier: GPL-2.0-or-later
//
// Which lines were touched after which: time slots, one live slot a line. A line that is touched gives
// up the slot that it had and takes the next; how many lines were touched since is how many slots were taken
// later, without those of them that ended. Only ends are written down, so that to take a slot is to count
// one up. For distance.c alone; crates/reuse/src/slots.rs is the same.
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
    uint64_t *ended;
    // Ended slots of each word, block, tile, region, area.
    uint8_t *words;
    uint16_t *blocks, *tiles;
    uint32_t *regions, *areas;
    uint64_t room, next;
    uint64_t ends; // of all slots
};

static inline uint64_t area_count(uint64_t room) { return (room + (1ull << AREA_BITS) - 1) >> AREA_BITS; }

static void slots_empty(struct slots *s, uint64_t room)
{
    s->room = room;
    s->ended = reuse_alloc(room / 8);
    s->words = reuse_alloc(room / 64);
    s->blocks = reuse_alloc((room >> BLOCK_BITS) * sizeof *s->blocks);
    s->tiles = reuse_alloc((room >> TILE_BITS) * sizeof *s->tiles);
    s->regions = reuse_alloc(area_count(room) * AREA_REGIONS * sizeof *s->regions);
    s->areas = reuse_alloc(area_count(room) * sizeof *s->areas);
    s->ends = 0;
}

static void slots_free(struct slots *s)
{
    void *all[] = {s->ended, s->words, s->blocks, s->tiles, s->regions, s->areas};
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
    s->ended = slots_part(s->ended, s->room / 8);
    s->words = slots_part(s->words, s->room / 64);
    s->blocks = slots_part(s->blocks, (s->room >> BLOCK_BITS) * sizeof *s->blocks);
    s->tiles = slots_part(s->tiles, (s->room >> TILE_BITS) * sizeof *s->tiles);
    s->regions = slots_part(s->regions, area_count(s->room) * AREA_REGIONS * sizeof *s->regions);
    s->areas = slots_part(s->areas, area_count(s->room) * sizeof *s->areas);
}

typedef uint16_t pairs __attribute__((vector_size(16)));
typedef uint32_t fours __attribute__((vector_size(16)));
typedef int32_t four __attribute__((vector_size(16)));
// From entry LANES - 1 - i on, the lanes after the one at i.
static const uint8_t AFTER_BYTE[2 * BLOCK_WORDS] __attribute__((aligned(32))) = {
    [BLOCK_WORDS] = 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
static const uint16_t AFTER_PAIR[2 * TILE_BLOCKS] __attribute__((aligned(32))) = {
    [TILE_BLOCKS] = 65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535};

static inline fours at(const void *memory)
{
    fours all;
    __builtin_memcpy(&all, memory, sizeof all);
    return all;
}

// Ends a slot; returns how many live ones come after it. Hardly anything in it branches: how far a slot
// is from the end of its block cannot be foretold.
static inline uint32_t slot_give_up(struct slots *s, uint32_t slot)
{
    const uint32_t word = slot / 64, block = slot >> BLOCK_BITS, tile = slot >> TILE_BITS,
                   region = slot >> REGION_BITS, area = slot >> AREA_BITS;
    uint32_t ended = (uint32_t)__builtin_popcountll(s->ended[word] >> (slot % 64));
    const pairs words = (pairs)(at(s->words + word / BLOCK_WORDS * BLOCK_WORDS) &
                                at(AFTER_BYTE + (BLOCK_WORDS - 1) - word % BLOCK_WORDS));
    const pairs blocks = (pairs)(at(s->blocks + block / TILE_BLOCKS * TILE_BLOCKS) &
                                 at(AFTER_PAIR + (TILE_BLOCKS - 1) - block % TILE_BLOCKS));
    const pairs tiles = (pairs)(at(s->tiles + tile / REGION_TILES * REGION_TILES) &
                                at(AFTER_PAIR + (REGION_TILES - 1) - tile % REGION_TILES));
    // Bytes are up to 64, two of them up to 128; a region's slots but this one are fewer than 2^16.
    const pairs sum = (words & 255) + (words >> 8) + blocks + tiles;
    fours all = ((fours)sum & 65535) + ((fours)sum >> 16);
    if (s->next > REGION) {
        // All regions of the area, those up to this one left out.
        const uint32_t first = area * AREA_REGIONS, used = (uint32_t)((s->next + REGION - 1) >> REGION_BITS);
        const uint32_t end = used - first < AREA_REGIONS ? used : first + AREA_REGIONS;
        fours index = {first, first + 1, first + 2, first + 3};
        for (uint32_t r = first; r < end; r += 4) {
            all += at(s->regions + r) & (fours)((four)index > (int32_t)region);
            index += 4;
        }
        const uint32_t areas = (uint32_t)area_count(s->next);
        for (uint32_t a = area + 1; a < areas; a++)
            ended += s->areas[a];
    }
    ended += all[0] + all[1] + all[2] + all[3];
    s->ended[word] |= 1ull << (slot % 64);
    s->words[word]++;
    s->blocks[block]++;
    s->tiles[tile]++;
    s->regions[region]++;
    s->areas[area]++;
    s->ends++;
    return (uint32_t)(s->next - 1 - slot) - ended;
}

static inline void slot_prefetch(const struct slots *s, uint32_t slot)
{
    __builtin_prefetch(&s->ended[slot / 64]);
    __builtin_prefetch(&s->words[slot / 64]);
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
        sum += 64u - old.words[w];
    }
    const uint64_t live = old.next - old.ends, room = live > old.room / 2 ? old.room * 2 : old.room;
    if (room > MOST_SLOTS)
        reuse_fail("more than 2^30 distinct lines (64 GiB) cannot be told apart: use a sample");
    slots_empty(s, room);
    s->next = live;
    for (uint64_t i = 0; i < held; i++) {
        if (numbers[i] == NO_SLOT)
            continue;
        const uint32_t word = numbers[i] / 64;
        const uint64_t below = (1ull << (numbers[i] % 64)) - 1;
        numbers[i] = before[word] + (uint32_t)__builtin_popcountll(~old.ended[word] & below);
    }
    slots_free(&old);
    reuse_free(before);
}

#endif
