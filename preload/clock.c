/* Time stamps at the price of reading a register.
 *
 * CLOCK_MONOTONIC costs some 25 ns a reading through the vDSO, twice a region. Where the processor's counter
 * is invariant (runs at one rate on all cores in all sleep states) it is read instead and scaled to the
 * nanoseconds of CLOCK_MONOTONIC: one anchor pair is taken at load, and the scale is what passed since then
 * on either clock, so it gets better the longer the program runs. */
#include "internal.h"

#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
/* A scale taken over less than this is not worth having (the reading itself takes some 50 ns). */
#define FIRST_SPAN_NS UINT64_C(50000)
#define REFINE_NS (NS_PER_S / 2)

static bool counter;          /* the register is usable */
static uint64_t anchor_ticks; /* set once at load */
static uint64_t anchor_ns;
static uint64_t scale = UINT64_C(1) << 32; /* ns per tick, times 2^32 */
static uint64_t refine_at;                 /* ticks */
static bool started;

uint64_t clock_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__)
#include <cpuid.h>
static bool counter_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
}
static inline uint64_t counter_read(void) { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
static bool counter_is_invariant(void) { return true; } /* by the architecture */
static inline uint64_t counter_read(void)
{
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
#else
static bool counter_is_invariant(void) { return false; }
static inline uint64_t counter_read(void) { return 0; }
#endif

uint64_t clock_ticks(void) { return LIKELY(counter) ? counter_read() : clock_monotonic_ns(); }

/* Both clocks at one moment. Whoever is interrupted between two readings has a pair that is off by the
 * interruption, which over a short span spoils the scale: of a few pairs the closest is taken. */
static void pair(uint64_t *ticks, uint64_t *ns)
{
    const uint64_t close = 2000; /* ticks: less than a microsecond */
    uint64_t width = UINT64_MAX;
    for (int tries = 0; tries < 8 && width > close; tries++) {
        uint64_t before = clock_ticks(), now = clock_monotonic_ns(), after = clock_ticks();
        if (after - before < width) {
            width = after - before;
            *ticks = before + width / 2;
            *ns = now;
        }
    }
}

uint64_t clock_span_ns(uint64_t ticks)
{
    /* Counters of two cores may differ by a hair: a span that came out negative is none. */
    if (UNLIKELY((int64_t)ticks < 0))
        return 0;
    return (uint64_t)(((unsigned __int128)ticks * LOAD(&scale)) >> 32);
}

uint64_t clock_at_ns(uint64_t ticks) { return anchor_ns + clock_span_ns(ticks - anchor_ticks); }

static void rescale(void)
{
    uint64_t ticks = anchor_ticks, ns = anchor_ns;
    pair(&ticks, &ns);
    uint64_t span = ticks - anchor_ticks;
    if (span == 0)
        return;
    STORE(&scale, (uint64_t)(((unsigned __int128)(ns - anchor_ns) << 32) / span));
    STORE(&refine_at, ticks + (uint64_t)(((unsigned __int128)REFINE_NS << 32) / LOAD(&scale)));
}

void clock_load(void)
{
    counter = counter_is_invariant();
    pair(&anchor_ticks, &anchor_ns);
}

void clock_start(void)
{
    if (LIKELY(LOAD(&started)))
        return;
    if (counter) {
        while (clock_monotonic_ns() - anchor_ns < FIRST_SPAN_NS)
            continue;
        rescale();
    }
    STORE(&started, true);
}

void clock_refine(uint64_t ticks)
{
    if (UNLIKELY(counter && ticks > LOAD(&refine_at)))
        rescale();
}
