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

uint64_t clock_span_ns(uint64_t ticks)
{
    /* Counters of two cores may differ by a hair: a span that came out negative is none. */
    if (UNLIKELY((int64_t)ticks < 0))
        return 0;
    return (uint64_t)(((unsigned __int128)ticks * LOAD(&scale)) >> 32);
}

uint64_t clock_at_ns(uint64_t ticks) { return anchor_ns + clock_span_ns(ticks - anchor_ticks); }

static void rescale(uint64_t ticks, uint64_t ns)
{
    uint64_t span = ticks - anchor_ticks;
    if (span == 0)
        return;
    STORE(&scale, (uint64_t)(((unsigned __int128)(ns - anchor_ns) << 32) / span));
    STORE(&refine_at, ticks + (uint64_t)(((unsigned __int128)REFINE_NS << 32) / LOAD(&scale)));
}

void clock_load(void)
{
    counter = counter_is_invariant();
    anchor_ticks = clock_ticks();
    anchor_ns = clock_monotonic_ns();
}

void clock_start(void)
{
    if (LIKELY(LOAD(&started)))
        return;
    if (counter) {
        uint64_t ns;
        do
            ns = clock_monotonic_ns();
        while (ns - anchor_ns < FIRST_SPAN_NS);
        rescale(clock_ticks(), ns);
    }
    STORE(&started, true);
}

void clock_refine(uint64_t ticks)
{
    if (UNLIKELY(counter && ticks > LOAD(&refine_at)))
        rescale(clock_ticks(), clock_monotonic_ns());
}
