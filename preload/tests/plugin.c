/* An extension module as Python wheels have them: OpenMP inside, its own runtime in a local scope. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "constructs.h"
#include "ten.h"

int plugin_team(void)
{
    int n = 0;
#pragma omp parallel
#pragma omp single
    n = omp_get_level() == 1 ? omp_get_num_threads() : -1;
    return n;
}

static int hits;

static void hit(void)
{
#pragma omp atomic
    hits++;
}

/* No shared data, nothing behind it: GCC makes the call of the runtime a jump, so the return address is not
 * in this object. */
void plugin_team_by_tail_call(void)
{
#pragma omp parallel
    hit();
}

int plugin_hits(void) { return hits; }

int plugin_explicit(int threads)
{
    int n = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
    n = omp_get_num_threads();
    return n;
}

unsigned long long plugin_ten(const char *name, long rounds) { return ten_digest(name, rounds); }

long plugin_constructs(long rounds) { return check_constructs(rounds); }

#if !defined(__clang__) && defined(__x86_64__)
typedef void sections_fn(void (*)(void *), void *, unsigned, unsigned, unsigned);
extern sections_fn GOMP_parallel_sections;
extern unsigned GOMP_sections_next(void);
extern void GOMP_sections_end_nowait(void);

static void share(void *sum)
{
    for (unsigned section; (section = GOMP_sections_next());)
        __atomic_fetch_add((long *)sum, section, __ATOMIC_RELAXED);
    GOMP_sections_end_nowait();
}

/* As a compiler inside the program makes them: functions that no object holds. The region's jumps to the one above, and
 * the other calls the runtime, if that is wanted as well. */
long plugin_generated(int caller_too)
{
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    unsigned char call[] = {0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*region)(void *) = share;
    sections_fn *sections = GOMP_parallel_sections;
    long sum = 0;
    if (page == MAP_FAILED)
        return -1;
    memcpy(jump + 2, &region, sizeof region);
    memcpy(call + 6, &sections, sizeof sections);
    memcpy(page, jump, sizeof jump);
    memcpy(page + 64, call, sizeof call);
    if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0)
        return -1;
    region = (void (*)(void *))(uintptr_t)page;
    if (caller_too)
        sections = (sections_fn *)(uintptr_t)(page + 64);
    sections(region, &sum, 0, 100, 0);
    munmap(page, 4096);
    return sum;
}
#endif

int plugin_max_threads_by_tail_call(void) { return omp_get_max_threads(); }

void plugin_set_threads(int n) { omp_set_num_threads(n); }

int plugin_dynamic_by_tail_call(void) { return omp_get_dynamic(); }

void plugin_set_dynamic_by_tail_call(int on) { omp_set_dynamic(on); }
