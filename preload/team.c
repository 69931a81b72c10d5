/* How many threads a region gets, and what is written down about it.
 *
 * The size is min(what the program would have got, its share of the target). It is never more than the
 * program would have got, so buffers sized by omp_get_max_threads() hold. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* libgomp ends the pool threads that a smaller team (of two or more) does not use and makes new ones for a
 * larger team, some tens of microseconds each. Shrinking is never put off: the CPUs are about to go. Growing beyond
 * the threads that still exist waits until this long after the last shrinking, so that a flickering target
 * costs at most a hundred rounds of it a second. */
#define GROW_HOLD_NS UINT64_C(10000000)

/* libgomp's default is 300,000 turns; ten times as many still end within a tenth of a second. */
#define LONG_SPIN_TURNS UINT64_C(3000000)

/* What a thread remembers of runtimes' pools only paces it, so more runtimes than these may share it. */
#define POOLS 8u

#define START_DEPTH 16u /* regions begun by the _start entry points and not ended, in one thread */
#define OMP_PAUSE_SOFT 1

struct pool {
    uint32_t threads;   /* of the runtime's pool behind this thread; 0 = none made yet, or ended */
    uint64_t shrunk_at; /* ticks when we last made it smaller; 0 = never */
};

/* What is remembered of a thread that starts regions. */
struct master {
    uint32_t epoch;     /* + 1; differs: no lane taken since the last fork */
    unsigned lane;
    unsigned shrunk_to_one; /* in a region now that got one thread instead of several */
    unsigned outer;         /* threads of the outermost region that it is in; 0 = in none */
    unsigned given;     /* size of the latest region that could have had several */
    bool given_less;
    unsigned depth;
    struct {
        struct region region;
        const struct runtime *rt;
    } started[START_DEPTH];
    struct pool pool[POOLS];
};

/* In the static TLS block, which a library loaded at start may use: an access is one instruction. */
static __thread struct master master __attribute__((tls_model("initial-exec")));

static uint32_t lane0_taken;
static bool spins_long;

bool team_spins_long(void) { return spins_long; }

void team_after_fork(void) { lane0_taken = 0; }

/* GOMP_SPINCOUNT as libgomp reads it: a number with k, M, G or T behind it, or infinity. */
static bool spin_count_is_long(const char *text)
{
    if (text_is(text, "infinite") || text_is(text, "infinity"))
        return true;
    char *end;
    double turns = strtod(text, &end);
    switch (*end) {
    case 'k': case 'K': turns *= 1e3; break;
    case 'm': case 'M': turns *= 1e6; break;
    case 'g': case 'G': turns *= 1e9; break;
    case 't': case 'T': turns *= 1e12; break;
    default: break;
    }
    return turns > (double)LONG_SPIN_TURNS;
}

void team_load(void)
{
    const char *count = secure_getenv("GOMP_SPINCOUNT");
    const char *policy = secure_getenv("OMP_WAIT_POLICY");
    if (count && *count)
        spins_long = spin_count_is_long(count);
    else
        spins_long = policy && text_is(policy, "active");
}

/* Between two looks at what the program has loaded, where that cannot concern the region's own code. */
#define LOOK_NS UINT64_C(1000000)

static uint64_t looked; /* ticks; shared by all masters, and it does no harm if two look at once */

/* What a thread's floating-point operations do, as far as a program can choose it: rounding, masks of exceptions,
 * flushing to zero. Threads inherit it when they are made; 0: not known of this processor. */
static inline uint64_t floating_point(void)
{
#if defined(__x86_64__)
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return UINT64_C(1) << 63 | (uint64_t)x87 << 32 | (sse & ~UINT32_C(0x3f)); /* without what has happened so far */
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return UINT64_C(1) << 63 | control;
#else
    return 0;
#endif
}

static uint64_t floating_point_at_first; /* when the first region was entered, by whichever thread */

/* Threads of a team are made at different times. They compute alike only while what they inherit stays the same. */
static bool floating_point_differs(void)
{
    uint64_t now = floating_point(), first = LOAD(&floating_point_at_first);
    if (UNLIKELY(first == 0))
        STORE(&floating_point_at_first, first = now);
    return UNLIKELY(first != now);
}

/* Whether this region may get fewer threads than the program asks for: the node must have found that for everything
 * that is loaded by now, or the user must vouch for it. */
static bool may_resize(struct coplace_page *page, unsigned asked, const void *code, uint64_t now)
{
    if (UNLIKELY(LOAD(&page->rigid) != 0))
        return false;
    if (UNLIKELY(floating_point_differs())) {
        page_rigid(page, COPLACE_RIGID_FLOATING_POINT);
        return false;
    }
    bool stays = scope_stays_loaded(code);
    bool look = !stays || LOAD(&looked) == 0 || clock_span_ns(now - LOAD(&looked)) > LOOK_NS;
    if (UNLIKELY(look))
        STORE(&looked, now);
    uint32_t loads = page_loads(page, look);
    uint64_t word = LOAD(&page->resizable);
    if (word == COPLACE_RESIZABLE_BY_WORD) {
        if (LIKELY(asked <= 1) || region_tolerates_fewer(code))
            return true;
        page_rigid(page, COPLACE_RIGID_EXPLICIT_NUM_THREADS);
        return false;
    }
    if (word != ((uint64_t)(LOAD(&page->generation) + 1) << 32 | loads))
        return false;
    if (LIKELY(stays) || region_is_in_object(code, loads))
        return true;
    page_rigid(page, COPLACE_RIGID_GENERATED_CODE);
    return false;
}

/* Slow part of the first region of a thread (and of the first after a fork). */
static __attribute__((noinline, cold)) void join(struct coplace_page *page, const struct runtime *rt)
{
    clock_start();
    page_runtime_runs(page, rt);
    master.lane = __atomic_exchange_n(&lane0_taken, 1, __ATOMIC_ACQ_REL) ? 1 : 0;
    master.epoch = page_epoch + 1;
    master.shrunk_to_one = 0;
    master.outer = 0;
    __atomic_fetch_add(&page->masters, 1, __ATOMIC_RELAXED);
}

/* This thread's part of the target. Other masters of the process that are in a region now keep what they
 * have until they end it; each then takes no more than an equal part, or what the others leave.
 * `published`: what the page says already of the region that is being sized, 0 = nothing yet. */
static unsigned share_of(const struct coplace_page *page, unsigned target, unsigned published)
{
    uint64_t others = LOAD(&page->lane[1].now);
    if (UNLIKELY(master.lane == 1)) {
        uint64_t first = LOAD(&page->lane[0].now);
        others += first >> 32 ? first : 0;
        others -= published ? (UINT64_C(1) << 32) + published : 0;
    }
    uint32_t regions = (uint32_t)(others >> 32), threads = (uint32_t)others;
    if (LIKELY(regions == 0))
        return target;
    unsigned equal = target / (regions + 1), left = target > threads ? target - threads : 0;
    unsigned share = equal > left ? equal : left;
    return share ? share : 1;
}

static unsigned size_for(const struct coplace_page *page, const struct pool *pool, unsigned natural,
                         bool may_shrink, uint32_t target, uint64_t now, unsigned published)
{
    if (natural == 1 || !may_shrink)
        return natural;
    unsigned n = natural;
    if (target) {
        unsigned share = share_of(page, target, published);
        n = share < n ? share : n;
    }
    if (UNLIKELY(n > pool->threads && pool->shrunk_at != 0) &&
        clock_span_ns(now - pool->shrunk_at) < GROW_HOLD_NS)
        n = pool->threads > 1 ? pool->threads : 1;
    return n;
}

/* The runtime is about to run a team of `n`: what becomes of its pool. */
static void keep_pool(struct pool *pool, const struct runtime *rt, unsigned n, unsigned natural, uint64_t now)
{
    if (n == pool->threads || rt->kind != RUNTIME_GNU)
        return; /* LLVM's runtime parks its threads, and they sleep after a while */
    if (n > 1) {
        if (n < pool->threads && n < natural)
            pool->shrunk_at = now ? now : 1;
        pool->threads = n;
    } else if (UNLIKELY(spins_long && pool->threads > 1 && natural > 1) && rt->omp_pause_resource_all) {
        /* A team of one leaves the pool docked, and these threads would spin beside the program for
         * minutes. Ending the pool is allowed between regions, and the next larger team makes a new one. */
        if (rt->omp_pause_resource_all(OMP_PAUSE_SOFT) == 0) {
            pool->threads = 0;
            pool->shrunk_at = now ? now : 1;
        }
    }
}

static inline void add(unsigned lane, uint64_t *counter, uint64_t value)
{
    if (LIKELY(lane == 0))
        BUMP(counter, value);
    else
        __atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

/* Tells the node that a team of `n` runs, with a full barrier: see the promise in page.h. */
static inline void publish(struct coplace_lane *lane, unsigned index, unsigned n, unsigned instead_of)
{
    if (LIKELY(index == 0))
        __atomic_exchange_n(&lane->now, UINT64_C(1) << 32 | n, __ATOMIC_SEQ_CST);
    else if (instead_of == 0)
        __atomic_fetch_add(&lane->now, (UINT64_C(1) << 32) + n, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_add(&lane->now, (uint64_t)n - instead_of, __ATOMIC_SEQ_CST);
}

static uint64_t wish(const struct coplace_page *page)
{
    /* Ordered behind publish(), on every machine. */
    return __atomic_load_n((const uint64_t *)(const void *)&page->target, __ATOMIC_SEQ_CST);
}

static unsigned would_get(const struct runtime *rt, unsigned asked)
{
    if (asked == 1)
        return 1;
    unsigned n = asked ? asked : (unsigned)rt->omp_get_max_threads();
    unsigned limit = (unsigned)rt->omp_get_thread_limit();
    return n < limit ? n : limit;
}

/* A region inside a region. By default the runtime gives it one thread; only where the program has turned
 * nesting on does it get a team, and then all teams of one branch together keep to the target. */
static unsigned nested_enter(struct region *region, struct coplace_page *page, const struct runtime *rt,
                             unsigned asked, bool may_shrink, int level)
{
    bool outer_shrunk = master.shrunk_to_one;
    unsigned active = (unsigned)rt->omp_get_active_level();
    /* A region that we shrank to one is inactive for the runtime, which would give the regions in it a whole
     * team; for the program it is the active region that it would have been. (A region of another runtime
     * around this one counts for neither.) */
    if (UNLIKELY(outer_shrunk && level > 0))
        active++;
    /* LLVM's runtime writes to stderr when it is asked for the second of these. */
    if (asked == 1 || active >= (unsigned)rt->omp_get_max_active_levels() ||
        (active >= 1 && rt->kind == RUNTIME_GNU && !rt->omp_get_nested()))
        return outer_shrunk && level > 0 ? 1 : asked;
    unsigned natural = asked ? asked : (unsigned)rt->omp_get_max_threads();
    unsigned n = natural;
    uint32_t target = (uint32_t)wish(page);
    if (may_shrink && target) {
        unsigned around = level > 0 || !master.outer ? 1 : master.outer;
        for (int i = 1; i <= level; i++)
            around *= (unsigned)rt->omp_get_team_size(i);
        unsigned most = target / around > 1 ? target / around : 1;
        n = n < most ? n : most;
    }
    if (n > 1) {
        region->kind = REGION_NESTED;
        region->team = n;
        region->epoch = page_epoch;
        /* Teams inside this one are not inside a region that got less than it wanted. */
        region->outer_shrunk_to_one = outer_shrunk;
        master.shrunk_to_one = 0;
        __atomic_fetch_add(&page->nested, n - 1, __ATOMIC_SEQ_CST);
    }
    return n == natural ? asked : n;
}

unsigned region_enter(struct region *region, const struct runtime *rt, unsigned asked, const void *code)
{
    struct coplace_page *page = page_get();
    region->kind = REGION_UNCOUNTED;
    if (UNLIKELY(!page || rt->kind == RUNTIME_UNKNOWN))
        return asked;
    uint64_t now = clock_ticks();
    bool may_shrink = may_resize(page, asked, code, now);
    int level = rt->omp_get_level();
    if (level > 0 || UNLIKELY(master.outer && master.epoch == page_epoch + 1))
        return nested_enter(region, page, rt, asked, may_shrink, level);
    if (UNLIKELY(master.epoch != page_epoch + 1))
        join(page, rt);

    struct pool *pool = &master.pool[rt->index % POOLS];
    struct coplace_lane *lane = &page->lane[master.lane];
    unsigned natural = would_get(rt, asked);
    if (asked != 1 && (may_shrink || asked == 0))
        page_told(page, natural);

    uint64_t wished = wish(page);
    unsigned n = size_for(page, pool, natural, may_shrink, (uint32_t)wished, now, 0);
    publish(lane, master.lane, n, 0);
    for (uint64_t again = wish(page); UNLIKELY(again != wished); again = wish(page)) {
        unsigned before = n;
        wished = again;
        n = size_for(page, pool, natural, may_shrink, (uint32_t)wished, now, before);
        publish(lane, master.lane, n, before);
    }
    keep_pool(pool, rt, n, natural, now);

    STORE(&page->applied_seq, (uint32_t)(wished >> 32));
    STORE(&page->requested, natural);
    STORE(&lane->entered_ns, clock_at_ns(now));
    add(master.lane, &lane->regions, 1);
    if (natural > 1) {
        bool less = n < natural;
        if (less)
            add(master.lane, &lane->shrunk, 1);
        if (UNLIKELY(n != master.given) && (less || master.given_less))
            add(master.lane, &lane->resizes, 1);
        master.given = n;
        master.given_less = less;
    }
    region->kind = REGION_OUTER;
    region->lane = master.lane;
    region->team = n;
    region->epoch = page_epoch;
    region->entered = now;
    region->outer_shrunk_to_one = 0;
    master.shrunk_to_one = n == 1 && natural > 1;
    master.outer = n;
    /* A rigid program's call is passed as it came, whatever we think that it will get. */
    return n == natural ? asked : n;
}

void region_leave(const struct region *region)
{
    if (region->kind == REGION_UNCOUNTED)
        return;
    master.shrunk_to_one = region->outer_shrunk_to_one;
    struct coplace_page *page = page_get();
    if (UNLIKELY(!page || region->epoch != page_epoch))
        return; /* entered in the parent, left in the fork's child: this page knows nothing of it */
    if (region->kind == REGION_NESTED) {
        __atomic_fetch_sub(&page->nested, region->team - 1, __ATOMIC_SEQ_CST);
        return;
    }
    master.outer = 0;
    uint64_t now = clock_ticks();
    struct coplace_lane *lane = &page->lane[region->lane];
    unsigned bucket = region->team <= COPLACE_SIZES ? region->team - 1 : COPLACE_SIZES;
    add(region->lane, &lane->size[bucket].regions, 1);
    add(region->lane, &lane->size[bucket].ns, clock_span_ns(now - region->entered));
    STORE(&lane->left_ns, clock_at_ns(now));
    if (LIKELY(region->lane == 0))
        __atomic_store_n(&lane->now, region->team, __ATOMIC_RELEASE);
    else
        __atomic_fetch_sub(&lane->now, (UINT64_C(1) << 32) + region->team, __ATOMIC_RELEASE);
    clock_refine(now);
}

/* The old entry points come in two halves; what is known of the region waits here between them. */
void region_push(const struct runtime *rt, const struct region *region)
{
    if (master.depth < START_DEPTH) {
        master.started[master.depth].rt = rt;
        master.started[master.depth].region = *region;
    }
    master.depth++;
}

const struct runtime *region_pop(struct region *region)
{
    region->kind = REGION_UNCOUNTED;
    if (master.depth == 0)
        return NULL;
    if (--master.depth >= START_DEPTH)
        return NULL;
    *region = master.started[master.depth].region;
    return master.started[master.depth].rt;
}
