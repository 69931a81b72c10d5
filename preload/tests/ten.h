/* Ten ways to be parallel, each with a result that does not depend on the team's size, for any compiler. */
#ifndef COPLACE_TEST_TEN_H
#define COPLACE_TEST_TEN_H

#include <omp.h>
#include <stdint.h>
#include <string.h>

enum { TEN_ITEMS = 180 };

static inline uint64_t ten_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Some work with a value of its own for each number. */
static inline uint64_t ten_work(uint64_t n)
{
    for (int i = 0; i < 20; i++)
        n = ten_mix(n, (uint64_t)i);
    return n;
}

static uint64_t ten_static_loop(long round)
{
    uint64_t result[TEN_ITEMS], hash = 0;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < TEN_ITEMS; i++)
        result[i] = ten_work((uint64_t)(i + round));
    for (int i = 0; i < TEN_ITEMS; i++)
        hash = ten_mix(hash, result[i]);
    return hash;
}

static uint64_t ten_handed_out_loops(long round)
{
    uint64_t sum = 0;
#pragma omp parallel for schedule(dynamic, 3) reduction(+ : sum)
    for (int i = 0; i < TEN_ITEMS; i++)
        sum += ten_work((uint64_t)(i + round));
#pragma omp parallel for schedule(guided) reduction(^ : sum)
    for (int i = 0; i < TEN_ITEMS; i++)
        sum ^= ten_work((uint64_t)(i * 3 + round));
#pragma omp parallel for schedule(runtime) reduction(+ : sum)
    for (int i = 0; i < TEN_ITEMS; i++)
        sum += ten_work((uint64_t)(i * 5 + round));
    return sum;
}

static uint64_t ten_ordered(long round)
{
    uint64_t hash = 0;
    int last = -1;
#pragma omp parallel for ordered schedule(dynamic) lastprivate(last)
    for (int i = 0; i < 40; i++) {
        uint64_t own = ten_work((uint64_t)(i + round));
#pragma omp ordered
        hash = ten_mix(hash, own);
        last = i;
    }
    return ten_mix(hash, (uint64_t)last);
}

static uint64_t ten_sections(long round)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
#pragma omp parallel sections
    {
#pragma omp section
        a = ten_work((uint64_t)round);
#pragma omp section
        b = ten_work((uint64_t)round + 1);
#pragma omp section
        c = ten_work((uint64_t)round + 2);
#pragma omp section
        d = ten_work((uint64_t)round + 3);
    }
    return a ^ b * 3 ^ c * 5 ^ d * 7;
}

/* Steps with a barrier between them, a single, a master, a critical section. */
static uint64_t ten_steps(long round)
{
    uint64_t from[TEN_ITEMS], to[TEN_ITEMS], sum = 0, seen = 0;
    for (int i = 0; i < TEN_ITEMS; i++)
        from[i] = (uint64_t)(i + round);
#pragma omp parallel
    {
        uint64_t own = 0, copied;
        for (int step = 0; step < 4; step++) {
#pragma omp for
            for (int i = 0; i < TEN_ITEMS; i++)
                to[i] = from[(i + 1) % TEN_ITEMS] + 3 * from[(i + TEN_ITEMS - 1) % TEN_ITEMS];
#pragma omp for
            for (int i = 0; i < TEN_ITEMS; i++)
                from[i] = to[i];
        }
#pragma omp single copyprivate(copied)
        copied = from[7];
#pragma omp for nowait
        for (int i = 0; i < TEN_ITEMS; i++)
            own += from[i] ^ copied;
#pragma omp critical
        sum += own;
#pragma omp barrier
#pragma omp master
        seen = sum;
    }
    return seen;
}

static uint64_t ten_tree(uint64_t node, int depth)
{
    uint64_t left, right;
    if (depth == 0)
        return ten_work(node);
#pragma omp task shared(left)
    left = ten_tree(node * 2, depth - 1);
#pragma omp task shared(right)
    right = ten_tree(node * 2 + 1, depth - 1);
#pragma omp taskwait
    return ten_mix(left, right);
}

static uint64_t ten_tasks(long round)
{
    uint64_t result = 0;
#pragma omp parallel
#pragma omp single
    result = ten_tree((uint64_t)round + 1, 4);
    return result;
}

static uint64_t ten_taskloop_and_depend(long round)
{
    uint64_t result[TEN_ITEMS], chain = (uint64_t)round;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskloop grainsize(20)
        for (int i = 0; i < TEN_ITEMS; i++)
            result[i] = ten_work((uint64_t)(i + round));
#pragma omp taskgroup
        for (int i = 0; i < 8; i++) {
#pragma omp task depend(inout : chain) shared(chain) firstprivate(i)
            chain = ten_mix(chain, (uint64_t)i);
        }
    }
    for (int i = 0; i < TEN_ITEMS; i++)
        chain = ten_mix(chain, result[i]);
    return chain;
}

static uint64_t ten_nested(long round)
{
    uint64_t sum = 0;
    omp_set_max_active_levels(2);
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 6; i++) {
        uint64_t inner = 0;
#pragma omp parallel for reduction(+ : inner)
        for (int k = 0; k < 30; k++)
            inner += ten_work((uint64_t)(i * 30 + k + round));
        sum += ten_mix(inner, (uint64_t)i);
    }
    return sum;
}

static uint64_t ten_teams(long round)
{
    uint64_t sum = 0;
#pragma omp teams distribute parallel for reduction(+ : sum)
    for (int i = 0; i < TEN_ITEMS; i++)
        sum += ten_work((uint64_t)(i + round));
    return sum;
}

/* A search that stops all threads when one has found it (OMP_CANCELLATION=true), then a region of as many threads as
 * the program says by omp_set_num_threads. (A loop handed out dynamically, when cancelled, fails assertions of
 * LLVM's runtime 14 now and then, without coplace too.) */
static uint64_t ten_cancelled_and_set(long round)
{
    int found = -1, wanted = (int)(round * 7 % TEN_ITEMS);
    uint64_t sum = 0;
#pragma omp parallel
#pragma omp for schedule(static, 4)
    for (int i = 0; i < TEN_ITEMS; i++) {
#pragma omp cancellation point for
        if (ten_work((uint64_t)i) == ten_work((uint64_t)wanted)) {
#pragma omp atomic write
            found = i;
#pragma omp cancel for
        }
    }
    omp_set_num_threads(1 + (int)(round % 4));
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < TEN_ITEMS; i++)
        sum += ten_work((uint64_t)(i + found));
    return sum;
}

static const struct {
    const char *name;
    uint64_t (*run)(long round);
} ten[] = {
    {"static-loop", ten_static_loop},
    {"handed-out-loops", ten_handed_out_loops},
    {"ordered", ten_ordered},
    {"sections", ten_sections},
    {"steps", ten_steps},
    {"tasks", ten_tasks},
    {"taskloop-depend", ten_taskloop_and_depend},
    {"nested", ten_nested},
    {"teams", ten_teams},
    {"cancel-set-threads", ten_cancelled_and_set},
};

/* The digest of so many rounds of one of them; 0 = there is none of that name. */
static uint64_t ten_digest(const char *name, long rounds)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < sizeof ten / sizeof *ten; i++)
        for (long round = 0; strcmp(ten[i].name, name) == 0 && round < rounds; round++)
            hash = ten_mix(hash, ten[i].run(round));
    return hash;
}

#endif
