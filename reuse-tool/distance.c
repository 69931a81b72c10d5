// SPDX-License-Identifier: GPL-2.0-or-later
//
// The engine. The last few lines stand in a short list in their exact order. Every other line has a
// time slot (slots.h). Lines find their slots by a table with open hashing whose keys are groups of
// neighbouring lines.
#include "distance.h"

#include "slots.h"

enum {
    RECENT = 8,
    // Lines of a group: a page where every line counts, fewer where most lines of a page do not.
    GROUP_BITS = 6, SAMPLED_GROUP_BITS = 2,
    // An entry of the table: a key + 1, and below it the number of its group.
    NUMBER_BITS = 26,
    FIRST_TABLE_BITS = 10,
    // How far ahead the table, then the slots, then what counts them are fetched.
    AHEAD = 24, NEAR = 16, NEXT = 8,
    BATCH = 2048, FEW = 8,
};
#define NOBODY 0xffffffffu
#define NUMBER_MASK ((1ull << NUMBER_BITS) - 1)

struct engine {
    uint64_t recent[RECENT];
    uint32_t places[RECENT];
    uint32_t recent_count;

    struct slots slots;

    uint64_t *table;
    uint32_t table_bits, group_bits;
    uint32_t groups, group_room;
    uint32_t *slot_of; // 2^group_bits for each group

    // A batch at work: lines that were not in the short list, how many stood there, who had to leave it
    // for them (by tickets, which are the list's entries before the batch and then these lines), and each
    // ticket's place as far as it is known; before that, where in the table the search for it begins.
    uint64_t missed[BATCH];
    uint32_t stood[BATCH], leaver[BATCH], place_of[RECENT + BATCH];
};

// Groups of lines

static inline uint64_t home(const struct engine *e, uint64_t key)
{
    // Another factor than that of samples, whose lines have small products with theirs.
    return (key * 0xbf58476d1ce4e5b9ull) >> (64 - e->table_bits);
}

static void table_put(struct engine *e, uint64_t entry)
{
    const uint64_t mask = (1ull << e->table_bits) - 1;
    uint64_t at = home(e, (entry >> NUMBER_BITS) - 1);
    while (e->table[at])
        at = (at + 1) & mask;
    e->table[at] = entry;
}

static inline uint32_t group_find_from(const struct engine *e, uint64_t at, uint64_t key)
{
    const uint64_t mask = (1ull << e->table_bits) - 1;
    for (uint64_t entry; (entry = e->table[at]); at = (at + 1) & mask)
        if (entry >> NUMBER_BITS == key + 1)
            return entry & NUMBER_MASK;
    return NOBODY;
}

static inline uint32_t group_find(const struct engine *e, uint64_t key)
{
    return group_find_from(e, home(e, key), key);
}

static uint32_t group_find_or_add(struct engine *e, uint64_t key)
{
    const uint32_t found = group_find(e, key);
    if (found != NOBODY)
        return found;
    if (key + 1 > ~0ull >> NUMBER_BITS || e->groups >= NUMBER_MASK)
        reuse_fail("more than 256 GiB of memory are touched, or an address beyond 2^49: use a sample");
    if (4ull * e->groups >= 1ull << e->table_bits) {
        uint64_t *old = e->table;
        const uint64_t size = 1ull << e->table_bits++;
        e->table = reuse_alloc((size * 2) * sizeof *e->table);
        for (uint64_t at = 0; at < size; at++)
            if (old[at])
                table_put(e, old[at]);
        reuse_free(old);
    }
    if (e->groups == e->group_room) {
        uint32_t *old = e->slot_of;
        e->group_room *= 2;
        e->slot_of = reuse_alloc(((uint64_t)e->group_room << e->group_bits) * sizeof *e->slot_of);
        reuse_copy(e->slot_of, old, ((uint64_t)e->groups << e->group_bits) * sizeof *e->slot_of);
        reuse_free(old);
    }
    uint32_t *slots = e->slot_of + ((uint64_t)e->groups << e->group_bits);
    for (int i = 0; i < 1 << e->group_bits; i++)
        slots[i] = NO_SLOT;
    table_put(e, (key + 1) << NUMBER_BITS | e->groups);
    return e->groups++;
}

static inline uint32_t place_in(uint32_t group_bits, uint32_t group, uint64_t line)
{
    return group << group_bits | (uint32_t)(line & ((1u << group_bits) - 1));
}

// The stack

static struct engine *engine_new(uint32_t group_bits)
{
    struct engine *e = reuse_alloc(sizeof *e);
    for (int i = 0; i < RECENT; i++)
        e->recent[i] = ~0ull;
    slots_empty(&e->slots, REGION);
    e->group_bits = group_bits;
    e->table_bits = FIRST_TABLE_BITS;
    e->table = reuse_alloc((1ull << e->table_bits) * sizeof *e->table);
    e->group_room = 1 << 8;
    e->slot_of = reuse_alloc(((uint64_t)e->group_room << group_bits) * sizeof *e->slot_of);
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

// A line below the short list, where `stood` lines stand, comes up: its depth, 0 for a first touch.
static inline uint64_t come_up(struct engine *e, uint32_t place, uint32_t stood)
{
    const uint32_t slot = e->slot_of[place];
    if (slot == NO_SLOT)
        return 0;
    e->slot_of[place] = NO_SLOT;
    return (uint64_t)slot_give_up(&e->slots, slot) + stood + 1;
}

// The last of the short list goes below it.
static inline void go_down(struct engine *e, uint32_t place)
{
    if (e->slots.next == e->slots.room)
        slots_make_room(&e->slots, e->slot_of, (uint64_t)e->groups << e->group_bits);
    e->slot_of[place] = (uint32_t)e->slots.next++;
}

// The access's depth; 0 for a first touch.
static uint64_t engine_access(struct engine *e, uint64_t line)
{
    for (uint32_t i = 0; i < e->recent_count; i++)
        if (e->recent[i] == line) {
            to_front(e, (int)i, line, e->places[i]);
            return (uint64_t)i + 1;
        }
    const uint32_t place = place_in(e->group_bits, group_find_or_add(e, line >> e->group_bits), line);
    const uint64_t depth = come_up(e, place, e->recent_count);
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
    const uint32_t group = group_find(e, line >> e->group_bits);
    if (group != NOBODY)
        come_up(e, place_in(e->group_bits, group, line), 0);
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

// The depth among all lines: others between appear in the sample at its rate.
static inline uint64_t scaled(const struct counter *c, uint64_t depth)
{
    return 1 + (uint64_t)((double)(depth - 1) * c->scale + 0.5);
}

static void set_threshold(struct counter *c, uint64_t threshold)
{
    c->threshold = threshold;
    c->scale = 18446744073709551616.0 / (double)threshold;
    c->weight = (uint64_t)(SAMPLE_UNIT * c->scale + 0.5);
    for (uint32_t depth = 1; depth <= RECENT; depth++)
        c->near[depth] = bin_of(scaled(c, depth));
}

static inline void count_sampled(struct counter *c, uint64_t line, uint32_t bin)
{
    c->bins[(uint64_t)group_of(line) * BINS + bin] += c->weight;
}

struct counter *counter_new(uint64_t threshold, uint32_t most)
{
    struct counter *c = reuse_alloc(sizeof *c);
    const uint64_t groups = threshold ? GROUPS : 1;
    c->engine = engine_new(threshold ? SAMPLED_GROUP_BITS : GROUP_BITS);
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
    slots_free(&e->slots);
    void *all[] = {e->table, e->slot_of, e, c->bins, c->first, c->heap, c};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            reuse_free(all[i]);
}

struct counter *counter_copy(const struct counter *from)
{
    struct counter *c = slots_part(from, sizeof *c);
    struct engine *e = c->engine = slots_part(from->engine, sizeof *e);
    const uint64_t groups = c->threshold ? GROUPS : 1;
    slots_copy(&e->slots);
    e->table = slots_part(e->table, (1ull << e->table_bits) * sizeof *e->table);
    e->slot_of = slots_part(e->slot_of, ((uint64_t)e->group_room << e->group_bits) * sizeof *e->slot_of);
    c->bins = slots_part(c->bins, groups * BINS * sizeof *c->bins);
    c->first = slots_part(c->first, groups * sizeof *c->first);
    if (c->heap)
        c->heap = slots_part(c->heap, ((uint64_t)c->most + 2) * sizeof *c->heap);
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

// A sample's access for itself.
static void one_sampled(struct counter *c, uint64_t line)
{
    const uint64_t depth = engine_access(c->engine, line);
    if (depth) {
        count_sampled(c, line, bin_of(scaled(c, depth)));
        return;
    }
    c->first[group_of(line)] += c->weight;
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

// The lines that were not in the short list: each step is fetched ahead, and none waits for another line's.
static inline __attribute__((always_inline)) void look_up(struct counter *c, uint32_t misses, const int is_sample)
{
    struct engine *e = c->engine;
    const uint32_t bits = is_sample ? SAMPLED_GROUP_BITS : GROUP_BITS;
    uint32_t *const places = e->place_of + RECENT;
    for (uint32_t n = 0; n < misses + AHEAD; n++) {
        if (n < misses) {
            places[n] = (uint32_t)home(e, e->missed[n] >> bits);
            __builtin_prefetch(&e->table[places[n]]);
        }
        const uint32_t near = n - (AHEAD - NEAR), next = n - (AHEAD - NEXT), now = n - AHEAD;
        if (near < misses) {
            // If the table has grown since, the search may fail for a known group; it is repeated below.
            const uint32_t group = group_find_from(e, places[near], e->missed[near] >> bits);
            places[near] = group == NOBODY ? NOBODY : place_in(bits, group, e->missed[near]);
            __builtin_prefetch(&e->slot_of[group == NOBODY ? 0 : places[near]]);
        }
        if (next < misses && places[next] != NOBODY) {
            const uint32_t slot = e->slot_of[places[next]];
            if (slot != NO_SLOT)
                slot_prefetch(&e->slots, slot);
        }
        if (now >= misses)
            continue;
        if (places[now] == NOBODY)
            places[now] = place_in(bits, group_find_or_add(e, e->missed[now] >> bits), e->missed[now]);
        const uint64_t depth = come_up(e, places[now], e->stood[now]);
        if (is_sample && depth)
            count_sampled(c, e->missed[now], bin_of(scaled(c, depth)));
        else if (is_sample)
            c->first[group_of(e->missed[now])] += c->weight;
        else if (depth)
            c->bins[bin_of(depth)]++;
        else
            c->first[0]++;
        if (e->leaver[now] != NOBODY)
            go_down(e, e->place_of[e->leaver[now]]);
    }
}

// Up to BATCH accesses, of all lines or of a sample of fixed rate. First the short list is kept, with tickets instead of
// places, then the lines that were not in it are looked up, fetched ahead.
static inline __attribute__((always_inline)) void batch(struct counter *c, const uint64_t *lines, uint32_t count,
                                                        const int is_sample)
{
    struct engine *e = c->engine;
    uint64_t recent[RECENT], again = 0, second = 0, third = 0;
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
            if (is_sample)
                count_sampled(c, line, 1);
            continue;
        }
        uint32_t own;
        if (line == second_line) {
            second++;
            if (is_sample)
                count_sampled(c, line, c->near[2]);
            own = next;
            goto two;
        }
        if (line == third_line) {
            third++;
            if (is_sample)
                count_sampled(c, line, c->near[3]);
            own = last;
            goto three;
        }
        uint32_t at = 3;
        while (at < RECENT && recent[at] != line)
            at++;
        if (at < RECENT) {
            if (is_sample)
                count_sampled(c, line, c->near[at + 1]);
            else
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
    if (!is_sample) {
        c->accesses += count;
        c->bins[1] += again;
        c->bins[2] += second;
        c->bins[3] += third;
    }
    look_up(c, misses, is_sample);
    for (uint32_t i = 0; i < RECENT; i++) {
        e->recent[i] = recent[i];
        e->places[i] = e->place_of[ticket[i]];
    }
    e->recent_count = stand;
}

static void batch_of_all(struct counter *c, const uint64_t *lines, uint32_t count) { batch(c, lines, count, 0); }
static void batch_of_sample(struct counter *c, const uint64_t *lines, uint32_t count) { batch(c, lines, count, 1); }

void counter_add(struct counter *c, const uint64_t *lines, uint32_t count, uint64_t all)
{
    if (c->threshold)
        c->accesses += all;
    // A sample of fixed size changes with each line that is new, and few lines are done before a batch has begun.
    if (c->most || (c->threshold && count < FEW)) {
        for (uint32_t i = 0; i < count; i++)
            if (sample_hash(lines[i]) < c->threshold)
                one_sampled(c, lines[i]);
        return;
    }
    for (uint32_t n; count; lines += n, count -= n) {
        n = count < BATCH ? count : BATCH;
        if (c->threshold)
            batch_of_sample(c, lines, n);
        else
            batch_of_all(c, lines, n);
    }
}

void counter_again(struct counter *c, uint64_t line, uint32_t times)
{
    if (!c->threshold) {
        c->accesses += times;
        c->bins[1] += times;
        return;
    }
    c->accesses += times;
    if (sample_hash(line) < c->threshold)
        c->bins[(uint64_t)group_of(line) * BINS + 1] += times * c->weight;
}
