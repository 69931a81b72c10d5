/* What the files of the preload library share. Everything here is hidden from the program. */
#ifndef COPLACE_INTERNAL_H
#define COPLACE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coplace/page.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
/* Single-writer counter: no locked instruction, yet never torn for a reader. */
#define BUMP(p, v) STORE(p, LOAD(p) + (v))

typedef void (*region_fn)(void *);

/* Every function of the runtime that we call on. The names are the runtime's; one list makes the fields
 * of struct runtime and the table by which they are looked up. */
#define RUNTIME_FUNCTIONS(X)                                                                               \
    X(void, GOMP_parallel, (region_fn, void *, unsigned, unsigned))                                        \
    X(unsigned, GOMP_parallel_reductions, (region_fn, void *, unsigned, unsigned))                         \
    X(void, GOMP_parallel_start, (region_fn, void *, unsigned))                                            \
    X(void, GOMP_parallel_end, (void))                                                                     \
    X(void, GOMP_parallel_sections, (region_fn, void *, unsigned, unsigned, unsigned))                     \
    X(void, GOMP_parallel_sections_start, (region_fn, void *, unsigned, unsigned))                         \
    X(void, GOMP_parallel_loop_static, (region_fn, void *, unsigned, long, long, long, long, unsigned))    \
    X(void, GOMP_parallel_loop_dynamic, (region_fn, void *, unsigned, long, long, long, long, unsigned))   \
    X(void, GOMP_parallel_loop_guided, (region_fn, void *, unsigned, long, long, long, long, unsigned))    \
    X(void, GOMP_parallel_loop_nonmonotonic_dynamic,                                                       \
      (region_fn, void *, unsigned, long, long, long, long, unsigned))                                     \
    X(void, GOMP_parallel_loop_nonmonotonic_guided,                                                        \
      (region_fn, void *, unsigned, long, long, long, long, unsigned))                                     \
    X(void, GOMP_parallel_loop_runtime, (region_fn, void *, unsigned, long, long, long, unsigned))         \
    X(void, GOMP_parallel_loop_nonmonotonic_runtime,                                                       \
      (region_fn, void *, unsigned, long, long, long, unsigned))                                           \
    X(void, GOMP_parallel_loop_maybe_nonmonotonic_runtime,                                                 \
      (region_fn, void *, unsigned, long, long, long, unsigned))                                           \
    X(void, GOMP_parallel_loop_static_start, (region_fn, void *, unsigned, long, long, long, long))        \
    X(void, GOMP_parallel_loop_dynamic_start, (region_fn, void *, unsigned, long, long, long, long))       \
    X(void, GOMP_parallel_loop_guided_start, (region_fn, void *, unsigned, long, long, long, long))        \
    X(void, GOMP_parallel_loop_runtime_start, (region_fn, void *, unsigned, long, long, long))             \
    X(int, omp_get_max_threads, (void))                                                                    \
    X(void, omp_set_dynamic, (int))                                                                        \
    X(int, omp_get_dynamic, (void))                                                                        \
    X(int, omp_get_num_procs, (void))                                                                      \
    X(int, omp_get_level, (void))                                                                          \
    X(int, omp_get_active_level, (void))                                                                   \
    X(int, omp_get_max_active_levels, (void))                                                              \
    X(int, omp_get_nested, (void))                                                                         \
    X(int, omp_get_team_size, (int))                                                                       \
    X(int, omp_get_thread_limit, (void))                                                                   \
    X(int, omp_get_proc_bind, (void))                                                                      \
    X(int, omp_pause_resource_all, (int))

#define RUNTIMES_MAX 8u

/* One OpenMP runtime of the process: a copy of libgomp, or something that we leave alone. */
struct runtime {
    unsigned index;
    bool gnu;             /* libgomp: teams may be resized */
    const void *base;     /* where its object is loaded: its identity */
#define X(ret, name, args) ret(*name) args;
    RUNTIME_FUNCTIONS(X)
#undef X
};

/* clock.c */
void clock_load(void);  /* at load: takes the anchor, no waiting */
void clock_start(void); /* before the first region: the scale is known from then on */
uint64_t clock_monotonic_ns(void); /* by the system; the others need clock_start() */
uint64_t clock_ticks(void);
uint64_t clock_span_ns(uint64_t ticks);
uint64_t clock_at_ns(uint64_t ticks);
void clock_refine(uint64_t ticks); /* call now and then: mostly a comparison */

/* page.c */
extern struct coplace_page *page_live; /* NULL: the library is inert. Once set it stays at one address. */
extern uint32_t page_epoch;            /* rises in a fork's child */
static inline struct coplace_page *page_get(void) { return LOAD(&page_live); }
void page_load(void);
void page_runtime_found(const struct runtime *rt); /* also makes the page that a fork's child has put off */
void page_runtime_runs(struct coplace_page *page, const struct runtime *rt); /* a region of it starts */
void page_rigid(struct coplace_page *page, uint32_t reason);
void page_told(struct coplace_page *page, uint32_t threads);
int cpus_allowed(void); /* by the affinity of this thread; 0 = cannot tell */
bool text_is(const char *text, const char *lower_case_word);

/* resolve.c */
extern const struct runtime *runtime_at_load;
const struct runtime *runtime_find(const void *code, const char *wanted);
unsigned runtime_count(void);
const struct runtime *runtime_nth(unsigned i);
void resolve_load(void);
bool resolve_is_bypassed(void); /* a runtime stands before us in the global scope: calls never reach us */
void resolve_after_fork(void);

/* The runtime that the code at this address would have been bound to without us, NULL if there is none.
 * What is in the global scope at load is found first by everybody, so it needs no look at the caller. */
static inline const struct runtime *runtime_of(const void *code, const char *wanted)
{
    const struct runtime *rt = LOAD(&runtime_at_load);
    return LIKELY(rt != NULL) ? rt : runtime_find(code, wanted);
}

/* team.c */
enum region_kind { REGION_UNCOUNTED, REGION_OUTER, REGION_NESTED };

struct region {
    enum region_kind kind;
    unsigned lane;
    unsigned team;
    unsigned outer_shrunk_to_one; /* what the enclosing region had in the thread's state */
    uint32_t epoch;
    uint64_t entered;
};

unsigned region_enter(struct region *region, const struct runtime *rt, unsigned asked);
void region_leave(const struct region *region);
void region_push(const struct runtime *rt, const struct region *region);
const struct runtime *region_pop(struct region *region);
void team_load(void);
void team_after_fork(void);
bool team_can_resize(const struct coplace_page *page);
bool team_spins_long(void);

#endif
