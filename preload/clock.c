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

struct clock process_clock = {.scale = UINT64_C(1) << 32};
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
#elif defined(__aarch64__)
static bool counter_is_invariant(void) { return true; } /* by the architecture */
#else
static bool counter_is_invariant(void) { return false; }
#endif

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

void clock_rescale(void)
{
    uint64_t ticks = process_clock.anchor_ticks, ns = process_clock.anchor_ns;
    pair(&ticks, &ns);
    uint64_t span = ticks - process_clock.anchor_ticks;
    if (span == 0)
        return;
    uint64_t scale = (uint64_t)(((unsigned __int128)(ns - process_clock.anchor_ns) << 32) / span);
    STORE(&process_clock.scale, scale);
    STORE(&process_clock.refine_at, ticks + (uint64_t)(((unsigned __int128)REFINE_NS << 32) / scale));
}

void clock_load(void)
{
    process_clock.counter = counter_is_invariant();
    pair(&process_clock.anchor_ticks, &process_clock.anchor_ns);
}

void clock_start(void)
{
    if (LIKELY(LOAD(&started)))
        return;
    if (process_clock.counter) {
        while (clock_monotonic_ns() - process_clock.anchor_ns < FIRST_SPAN_NS)
            continue;
        clock_rescale();
    }
    STORE(&started, true);
}
