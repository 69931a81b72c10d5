// SPDX-License-Identifier: GPL-2.0-or-later
//
// The engine. The last few lines stand in a short list in their exact order. Every other line has a
// time slot; how many lines were touched since is a count of live slots, by blocks and regions. Slots
// move together when they are used up, and become twice as many when over half were live. Lines find
// their slots by a table with open hashing whose keys are groups of 16 lines.
#include "distance.h"

enum {
    RECENT = 8,
    GROUP_BITS = 4, GROUP = 1 << GROUP_BITS,
    BLOCK_WORDS = 8, BLOCK_BITS = 9,    // 64-bit words and slots of a block
    TILE_BLOCKS = 16, TILE_BITS = 13,   // blocks and slots of a tile
    REGION_TILES = 8, REGION_BITS = 16, // tiles and slots of a region
    REGION = 1 << REGION_BITS,
    FIRST_TABLE_BITS = 10,
    AHEAD = 24, NEAR = 12,              // how far ahead the table and then the slots are fetched
    BATCH = 2048,
};
#define NOBODY 0xffffffffu
#define NO_SLOT 0xffffffffu
#define MOST_SLOTS (1ull << 31)

struct entry {
    uint64_t key; // + 1; 0: nobody
    uint32_t group;
};

struct engine {
    uint64_t recent[RECENT];
    uint32_t places[RECENT];
    uint32_t recent_count;

    uint64_t *live;
    uint16_t *blocks, *tiles;
    uint32_t *regions;
    uint64_t slots, next;
    uint32_t count;

    struct entry *table;
    uint32_t table_bits;
    uint32_t groups, group_room;
    uint32_t (*slot_of)[GROUP];

    // A batch at work: lines that were not in the short list, how many stood there, and who had to leave
    // it for them; by tickets, which are the list's entries before the batch and then these lines.
    uint64_t missed[BATCH];
    uint32_t stood[BATCH], leaver[BATCH], place_of[RECENT + BATCH];
};

// Time slots

static void slots_empty(struct engine *e, uint64_t slots)
{
    e->slots = slots;
    e->live = reuse_alloc(slots / 8);
    e->blocks = reuse_alloc((slots >> BLOCK_BITS) * sizeof *e->blocks);
    e->tiles = reuse_alloc((slots >> TILE_BITS) * sizeof *e->tiles);
    e->regions = reuse_alloc((slots >> REGION_BITS) * sizeof *e->regions);
}

static uint32_t slot_take(struct engine *e)
{
    const uint64_t slot = e->next++;
    e->live[slot / 64] |= 1ull << (slot % 64);
    e->blocks[slot >> BLOCK_BITS]++;
    e->tiles[slot >> TILE_BITS]++;
    e->regions[slot >> REGION_BITS]++;
    e->count++;
    return (uint32_t)slot;
}

typedef int16_t lanes __attribute__((vector_size(16)));
static const lanes FIRST = {0, 1, 2, 3, 4, 5, 6, 7}, SECOND = {8, 9, 10, 11, 12, 13, 14, 15};

// Eight counts, those up to the one at `index` left out.
static inline lanes after_index(const uint16_t *counts, lanes indices, int16_t index)
{
    lanes all;
    __builtin_memcpy(&all, counts, sizeof all);
    return all & (indices > (lanes){index, index, index, index, index, index, index, index});
}

// Ends a slot; returns how many live ones come after it. Nothing in it branches but the sum of the
// regions: how far a slot is from the end of its block cannot be foretold.
static uint32_t slot_give_up(struct engine *e, uint32_t slot)
{
    const uint64_t word = slot / 64, block = slot >> BLOCK_BITS, tile = slot >> TILE_BITS, region = slot >> REGION_BITS;
    const uint64_t *live = e->live + block * BLOCK_WORDS;
    const uint32_t within = word % BLOCK_WORDS;
    uint32_t after = (uint32_t)__builtin_popcountll(e->live[word] >> (slot % 64) >> 1);
    for (uint32_t w = 1; w < BLOCK_WORDS; w++)
        after += (uint32_t)__builtin_popcountll(live[w] & -(uint64_t)(w > within));
    const uint16_t *blocks = e->blocks + tile * TILE_BLOCKS;
    const int16_t own_block = (int16_t)(block % TILE_BLOCKS);
    // A region's slots but this one are fewer than 2^16: sums fit in the lanes' width.
    const lanes sum = after_index(blocks, FIRST, own_block) + after_index(blocks + 8, SECOND, own_block) +
                      after_index(e->tiles + region * REGION_TILES, FIRST, (int16_t)(tile % REGION_TILES));
    uint64_t halves[2];
    __builtin_memcpy(halves, &sum, sizeof halves);
    const uint64_t ones = 0x0001000100010001ull;
    after += (uint16_t)((halves[0] * ones >> 48) + (halves[1] * ones >> 48));
    const uint64_t used = (e->next + REGION - 1) >> REGION_BITS;
    for (uint64_t r = region + 1; r < used; r++)
        after += e->regions[r];
    e->live[word] &= ~(1ull << (slot % 64));
    e->blocks[block]--;
    e->tiles[tile]--;
    e->regions[region]--;
    e->count--;
    return after;
}

static uint64_t part(uint64_t count, uint64_t at, uint64_t size)
{
    return count <= at * size ? 0 : count - at * size < size ? count - at * size : size;
}

static void slots_make_room(struct engine *e)
{
    uint64_t *live = e->live;
    const uint64_t words = e->slots / 64;
    uint32_t *before = reuse_alloc(words * sizeof *before), sum = 0;
    for (uint64_t w = 0; w < words; w++) {
        before[w] = sum;
        sum += (uint32_t)__builtin_popcountll(live[w]);
    }
    reuse_free(e->blocks);
    reuse_free(e->tiles);
    reuse_free(e->regions);
    const uint64_t slots = e->count > e->slots / 2 ? e->slots * 2 : e->slots;
    if (slots > MOST_SLOTS)
        reuse_fail("more than 2^30 distinct lines (64 GiB) cannot be told apart: use a sample");
    slots_empty(e, slots);
    for (uint64_t w = 0; w < slots / 64; w++) {
        const uint64_t bits = part(e->count, w, 64);
        e->live[w] = bits ? ~0ull >> (64 - bits) : 0;
    }
    for (uint64_t b = 0; b < slots >> BLOCK_BITS; b++)
        e->blocks[b] = (uint16_t)part(e->count, b, 1 << BLOCK_BITS);
    for (uint64_t t = 0; t < slots >> TILE_BITS; t++)
        e->tiles[t] = (uint16_t)part(e->count, t, 1 << TILE_BITS);
    for (uint64_t r = 0; r < slots >> REGION_BITS; r++)
        e->regions[r] = (uint32_t)part(e->count, r, REGION);
    e->next = e->count;
    uint32_t *slot = e->slot_of[0];
    for (uint64_t i = 0; i < (uint64_t)e->groups * GROUP; i++) {
        if (slot[i] == NO_SLOT)
            continue;
        const uint32_t word = slot[i] / 64;
        slot[i] = before[word] + (uint32_t)__builtin_popcountll(live[word] & ((1ull << (slot[i] % 64)) - 1));
    }
    reuse_free(live);
    reuse_free(before);
}

// Groups of lines

static uint64_t home(const struct engine *e, uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15ull) >> (64 - e->table_bits);
}

static void table_put(struct engine *e, uint64_t key, uint32_t group)
{
    const uint64_t mask = (1ull << e->table_bits) - 1;
    uint64_t at = home(e, key);
    while (e->table[at].key)
        at = (at + 1) & mask;
    e->table[at] = (struct entry){key + 1, group};
}

static uint32_t *group_find(const struct engine *e, uint64_t key)
{
    const uint64_t mask = (1ull << e->table_bits) - 1;
    for (uint64_t at = home(e, key); e->table[at].key; at = (at + 1) & mask)
        if (e->table[at].key == key + 1)
            return e->slot_of[e->table[at].group];
    return 0;
}

static uint32_t *group_find_or_add(struct engine *e, uint64_t key)
{
    uint32_t *found = group_find(e, key);
    if (found)
        return found;
    if (2ull * e->groups >= 1ull << e->table_bits) {
        struct entry *old = e->table;
        const uint64_t size = 1ull << e->table_bits++;
        e->table = reuse_alloc((size * 2) * sizeof *e->table);
        for (uint64_t at = 0; at < size; at++)
            if (old[at].key)
                table_put(e, old[at].key - 1, old[at].group);
        reuse_free(old);
    }
    if (e->groups == e->group_room) {
        uint32_t(*old)[GROUP] = e->slot_of;
        e->group_room *= 2;
        e->slot_of = reuse_alloc((uint64_t)e->group_room * sizeof *e->slot_of);
        reuse_copy(e->slot_of, old, (uint64_t)e->groups * sizeof *e->slot_of);
        reuse_free(old);
    }
    uint32_t *slots = e->slot_of[e->groups];
    for (int i = 0; i < GROUP; i++)
        slots[i] = NO_SLOT;
    table_put(e, key, e->groups++);
    return slots;
}

// The stack

static struct engine *engine_new(void)
{
    struct engine *e = reuse_alloc(sizeof *e);
    for (int i = 0; i < RECENT; i++)
        e->recent[i] = ~0ull;
    slots_empty(e, REGION);
    e->table_bits = FIRST_TABLE_BITS;
    e->table = reuse_alloc((1ull << e->table_bits) * sizeof *e->table);
    e->group_room = 1 << 10;
    e->slot_of = reuse_alloc((uint64_t)e->group_room * sizeof *e->slot_of);
    return e;
}

static void to_front(struct engine *e, int from, uint64_t line, uint32_t place)
{
    for (int i = from; i > 0; i--) {
        e->recent[i] = e->recent[i - 1];
        e->places[i] = e->places[i - 1];
    }
    e->recent[0] = line;
    e->places[0] = place;
}

// A line below the short list, where `stood` lines stand, comes up: its depth, 0 for a first touch, and
// where its slot is noted.
static uint64_t come_up(struct engine *e, uint64_t line, uint32_t stood, uint32_t *place)
{
    uint32_t *slot = &group_find_or_add(e, line >> GROUP_BITS)[line % GROUP];
    uint64_t depth = 0;
    *place = (uint32_t)(slot - e->slot_of[0]);
    if (*slot != NO_SLOT) {
        depth = (uint64_t)slot_give_up(e, *slot) + stood + 1;
        *slot = NO_SLOT;
    }
    return depth;
}

// The last of the short list goes below it.
static void go_down(struct engine *e, uint32_t place)
{
    if (e->next == e->slots)
        slots_make_room(e);
    e->slot_of[0][place] = slot_take(e);
}

// The access's depth; 0 for a first touch.
static uint64_t engine_access(struct engine *e, uint64_t line)
{
    for (uint32_t i = 0; i < e->recent_count; i++)
        if (e->recent[i] == line) {
            to_front(e, (int)i, line, e->places[i]);
            return (uint64_t)i + 1;
        }
    uint32_t place;
    const uint64_t depth = come_up(e, line, e->recent_count, &place);
    if (e->recent_count == RECENT)
        go_down(e, e->places[RECENT - 1]);
    else
        e->recent_count++;
    to_front(e, RECENT - 1, line, place);
    return depth;
}

// The line leaves the stack, as if it had never been touched. The short list may be shorter from here
// on: all that it holds is still younger than all that is below.
static void engine_forget(struct engine *e, uint64_t line)
{
    for (uint32_t i = 0; i < e->recent_count; i++)
        if (e->recent[i] == line) {
            for (uint32_t j = i; j + 1 < e->recent_count; j++) {
                e->recent[j] = e->recent[j + 1];
                e->places[j] = e->places[j + 1];
            }
            e->recent[--e->recent_count] = ~0ull;
            return;
        }
    uint32_t *slot = group_find(e, line >> GROUP_BITS);
    if (slot && slot[line % GROUP] != NO_SLOT) {
        slot_give_up(e, slot[line % GROUP]);
        slot[line % GROUP] = NO_SLOT;
    }
}

// Counting

static uint32_t bin_of(uint64_t depth)
{
    if (depth < 128)
        return (uint32_t)depth;
    const uint32_t top = 63 - (uint32_t)__builtin_clzll(depth);
    return 128 + (top - 7) * 64 + (uint32_t)((depth >> (top - 6)) & 63);
}

static uint32_t group_of(uint64_t line)
{
    return (uint32_t)(((line ^ line >> 29) * 0xbf58476d1ce4e5b9ull) >> 60);
}

static void set_threshold(struct counter *c, uint64_t threshold)
{
    c->threshold = threshold;
    c->scale = 18446744073709551616.0 / (double)threshold;
    c->weight = (uint64_t)(SAMPLE_UNIT * c->scale + 0.5);
}

struct counter *counter_new(uint64_t threshold, uint32_t most)
{
    struct counter *c = reuse_alloc(sizeof *c);
    const uint64_t groups = threshold ? GROUPS : 1;
    c->engine = engine_new();
    c->bins = reuse_alloc(groups * BINS * sizeof *c->bins);
    c->first = reuse_alloc(groups * sizeof *c->first);
    c->most = most;
    if (most)
        c->heap = reuse_alloc(((uint64_t)most + 2) * sizeof *c->heap);
    if (threshold)
        set_threshold(c, threshold);
    return c;
}

void counter_free(struct counter *c)
{
    struct engine *e = c->engine;
    void *all[] = {e->live, e->blocks, e->tiles, e->regions, e->table, e->slot_of, e, c->bins, c->first, c->heap, c};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            reuse_free(all[i]);
}

static void *copy_of(const void *from, uint64_t bytes)
{
    void *copy = reuse_alloc(bytes);
    reuse_copy(copy, from, bytes);
    return copy;
}

struct counter *counter_copy(const struct counter *from)
{
    struct counter *c = copy_of(from, sizeof *c);
    struct engine *e = c->engine = copy_of(from->engine, sizeof *e);
    const uint64_t groups = c->threshold ? GROUPS : 1;
    e->live = copy_of(e->live, e->slots / 8);
    e->blocks = copy_of(e->blocks, (e->slots >> BLOCK_BITS) * sizeof *e->blocks);
    e->tiles = copy_of(e->tiles, (e->slots >> TILE_BITS) * sizeof *e->tiles);
    e->regions = copy_of(e->regions, (e->slots >> REGION_BITS) * sizeof *e->regions);
    e->table = copy_of(e->table, (1ull << e->table_bits) * sizeof *e->table);
    e->slot_of = copy_of(e->slot_of, (uint64_t)e->group_room * sizeof *e->slot_of);
    c->bins = copy_of(c->bins, groups * BINS * sizeof *c->bins);
    c->first = copy_of(c->first, groups * sizeof *c->first);
    if (c->heap)
        c->heap = copy_of(c->heap, ((uint64_t)c->most + 2) * sizeof *c->heap);
    return c;
}

static void heap_push(struct counter *c, uint64_t hash, uint64_t line)
{
    uint32_t at = c->heap_count++;
    for (; at && c->heap[(at - 1) / 2][0] < hash; at = (at - 1) / 2)
        reuse_copy(c->heap[at], c->heap[(at - 1) / 2], sizeof *c->heap);
    c->heap[at][0] = hash;
    c->heap[at][1] = line;
}

static void heap_pop(struct counter *c)
{
    const uint64_t hash = c->heap[--c->heap_count][0], line = c->heap[c->heap_count][1];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < c->heap_count && c->heap[child + 1][0] > c->heap[child][0])
            child++;
        if (child >= c->heap_count || c->heap[child][0] <= hash)
            break;
        reuse_copy(c->heap[at], c->heap[child], sizeof *c->heap);
        at = child;
    }
    c->heap[at][0] = hash;
    c->heap[at][1] = line;
}

static void sampled(struct counter *c, uint64_t line)
{
    const uint64_t depth = engine_access(c->engine, line);
    const uint32_t group = group_of(line);
    if (depth) {
        // Others between appear in the sample at its rate.
        const uint64_t scaled = 1 + (uint64_t)((double)(depth - 1) * c->scale + 0.5);
        c->bins[(uint64_t)group * BINS + bin_of(scaled)] += c->weight;
        return;
    }
    c->first[group] += c->weight;
    if (!c->most)
        return;
    heap_push(c, sample_hash(line), line);
    while (c->heap_count > c->most) {
        const uint64_t highest = c->heap[0][0];
        while (c->heap_count && c->heap[0][0] >= highest) {
            engine_forget(c->engine, c->heap[0][1]);
            heap_pop(c);
        }
        set_threshold(c, highest);
    }
}

// Up to BATCH accesses, exactly. First the short list is kept, with tickets instead of places, then the
// lines that were not in it are looked up, fetched ahead.
static void batch(struct counter *c, const uint64_t *lines, uint32_t count)
{
    struct engine *e = c->engine;
    uint64_t recent[RECENT], again = 0, second = 0, third = 0, none = 0;
    uint32_t ticket[RECENT], misses = 0, stand = e->recent_count;
    for (uint32_t i = 0; i < RECENT; i++) {
        recent[i] = e->recent[i];
        ticket[i] = i;
        e->place_of[i] = e->places[i];
    }
    // The first three stay in registers.
    uint64_t first_line = recent[0], second_line = recent[1], third_line = recent[2];
    uint32_t first = ticket[0], next = ticket[1], last = ticket[2];
    for (uint32_t n = 0; n < count; n++) {
        const uint64_t line = lines[n];
        if (line == first_line) {
            again++;
            continue;
        }
        uint32_t own;
        if (line == second_line) {
            second++;
            own = next;
            goto two;
        }
        if (line == third_line) {
            third++;
            own = last;
            goto three;
        }
        if (!line) {
            none++;
            continue;
        }
        uint32_t at = 3;
        while (at < RECENT && recent[at] != line)
            at++;
        if (at < RECENT) {
            c->bins[at + 1]++;
            own = ticket[at];
        } else {
            at = RECENT - 1;
            own = RECENT + misses;
            e->missed[misses] = line;
            e->stood[misses] = stand;
            e->leaver[misses++] = stand == RECENT ? ticket[at] : NOBODY;
            stand += stand < RECENT;
        }
        for (; at > 3; at--) {
            recent[at] = recent[at - 1];
            ticket[at] = ticket[at - 1];
        }
        recent[3] = third_line, ticket[3] = last;
    three:
        third_line = second_line, last = next;
    two:
        second_line = first_line, next = first;
        first_line = line, first = own;
    }
    recent[0] = first_line, recent[1] = second_line, recent[2] = third_line;
    ticket[0] = first, ticket[1] = next, ticket[2] = last;
    c->accesses += count - none;
    c->bins[1] += again;
    c->bins[2] += second;
    c->bins[3] += third;
    for (uint32_t n = 0; n < misses; n++) {
        if (n + AHEAD < misses)
            __builtin_prefetch(&e->table[home(e, e->missed[n + AHEAD] >> GROUP_BITS)]);
        if (n + NEAR < misses) {
            const uint32_t *slots = group_find(e, e->missed[n + NEAR] >> GROUP_BITS);
            if (slots)
                __builtin_prefetch(slots);
        }
        const uint64_t depth = come_up(e, e->missed[n], e->stood[n], &e->place_of[RECENT + n]);
        if (depth)
            c->bins[bin_of(depth)]++;
        else
            c->first[0]++;
        if (e->leaver[n] != NOBODY)
            go_down(e, e->place_of[e->leaver[n]]);
    }
    for (uint32_t i = 0; i < RECENT; i++) {
        e->recent[i] = recent[i];
        e->places[i] = e->place_of[ticket[i]];
    }
    e->recent_count = stand;
}

void counter_add(struct counter *c, const uint64_t *lines, uint32_t count, uint64_t all)
{
    if (!c->threshold) {
        for (; count > BATCH; lines += BATCH, count -= BATCH)
            batch(c, lines, BATCH);
        batch(c, lines, count);
        return;
    }
    c->accesses += all;
    for (uint32_t i = 0; i < count; i++)
        if (lines[i] && sample_hash(lines[i]) < c->threshold)
            sampled(c, lines[i]);
}

void counter_again(struct counter *c, uint64_t line, uint32_t times)
{
    if (!c->threshold) {
        c->accesses += times;
        c->bins[1] += times;
    } else if (sample_hash(line) < c->threshold) {
        c->bins[(uint64_t)group_of(line) * BINS + 1] += times * c->weight;
    }
}
