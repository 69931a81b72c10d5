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

#define SEEN __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define FROM(function) ((const void *)(uintptr_t)(function))

typedef void (*region_fn)(void *);                        /* a region as GCC compiles it */
typedef void (*micro_fn)(int32_t *, int32_t *, ...); /* a region as clang compiles it */

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
    X(int, omp_pause_resource_all, (int))                                                                  \
    X(void, __kmpc_fork_call, (void *, int32_t, micro_fn, ...))                                            \
    X(void, __kmpc_fork_teams, (void *, int32_t, micro_fn, ...))                                           \
    X(void, __kmpc_push_num_threads, (void *, int32_t, int32_t))                                           \
    X(void, __kmpc_push_num_threads_strict, (void *, int32_t, int32_t, int, const char *))                 \
    X(void, __kmpc_push_num_teams, (void *, int32_t, int32_t, int32_t))                                    \
    X(void, __kmpc_push_num_teams_51, (void *, int32_t, int32_t, int32_t, int32_t))                        \
    X(int32_t, __kmpc_global_thread_num, (void *))

enum runtime_kind {
    RUNTIME_UNKNOWN, /* left alone */
    RUNTIME_GNU,     /* a copy of libgomp */
    RUNTIME_LLVM     /* libomp or Intel's libiomp5; both carry GOMP_ names too, for programs built by GCC */
};

/* The names by which code calls its runtime. Each family may come from a library of its own. */
enum family { FAMILY_GNU, FAMILY_LLVM, FAMILY_QUERY, FAMILIES };

/* One OpenMP runtime of the process. */
struct runtime {
    const struct runtime *earlier; /* the one that was made known before it */
    unsigned index;
    enum runtime_kind kind;
    const void *base;     /* where its object is loaded: its identity */
#define X(ret, name, args) ret(*name) args;
    RUNTIME_FUNCTIONS(X)
#undef X
};

/* clock.c; what every region calls stands here, so that it costs no call */
void clock_load(void);  /* at load: takes the anchor, no waiting */
void clock_start(void); /* before the first region: the scale is known from then on */
uint64_t clock_monotonic_ns(void); /* by the system; the others need clock_start() */
void clock_rescale(void);

extern struct clock {
    bool counter;          /* the processor's counter is usable */
    uint64_t anchor_ticks; /* set once at load */
    uint64_t anchor_ns;
    uint64_t scale;     /* ns per tick, times 2^32 */
    uint64_t refine_at; /* ticks */
} process_clock __attribute__((visibility("hidden")));

#if defined(__x86_64__)
static inline uint64_t counter_read(void) { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
static inline uint64_t counter_read(void)
{
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
#else
static inline uint64_t counter_read(void) { return 0; }
#endif

static inline uint64_t clock_ticks(void)
{
    return LIKELY(process_clock.counter) ? counter_read() : clock_monotonic_ns();
}

static inline uint64_t clock_span_ns(uint64_t ticks)
{
    /* Counters of two cores may differ by a hair: a span that came out negative is none. */
    if (UNLIKELY((int64_t)ticks < 0))
        return 0;
    return (uint64_t)(((unsigned __int128)ticks * LOAD(&process_clock.scale)) >> 32);
}

static inline uint64_t clock_at_ns(uint64_t ticks)
{
    return process_clock.anchor_ns + clock_span_ns(ticks - process_clock.anchor_ticks);
}

/* To be called now and then; mostly a comparison. */
static inline void clock_refine(uint64_t ticks)
{
    if (UNLIKELY(process_clock.counter && ticks > LOAD(&process_clock.refine_at)))
        clock_rescale();
}

/* page.c */
extern struct coplace_page *page_live; /* NULL: the library is inert. Once set it stays at one address. */
extern uint32_t page_epoch;            /* rises in a fork's child */
static inline struct coplace_page *page_get(void) { return LOAD(&page_live); }
void page_load(void);
void page_find_directory(void); /* the first step of it; no page yet */
void page_runtime_found(const struct runtime *rt); /* also makes the page that a fork's child has put off */
void page_runtime_runs(struct coplace_page *page, const struct runtime *rt); /* a region of it starts */
void page_rigid(struct coplace_page *page, uint32_t reason);
uint32_t page_loads(struct coplace_page *page, bool look); /* how often objects came or went; `look`: by now */
void page_told(struct coplace_page *page, uint32_t threads);
void page_sets_own_mask(void);    /* from now on the program decides on its CPUs itself */
bool page_has_own_mask(void);
bool page_has_wish(void); /* the node's; before there is a page, by the default page */
int page_open_file(const char *name, int flags); /* in the directory of pages; -1: none */
bool text_is(const char *text, const char *lower_case_word);

/* interpose.c */
void no_runtime(const char *name) __attribute__((noreturn, cold));

/* mask.c */
void mask_load(void); /* once; a runtime that is linked with the program asks before our constructor runs */
int cpus_allowed(void); /* by the affinity of this thread; 0 = cannot tell */

/* inherit.c */
void inherit_load(void);

/* resolve.c */
extern const struct runtime *runtime_at_load[FAMILIES];
const struct runtime *runtime_find(const void *code, enum family family);
const struct runtime *runtime_instead(const void *code, const void *caller, const char *name) __attribute__((cold));
const struct runtime *runtime_latest(void); /* NULL: none is known */
unsigned runtime_count(void);
void resolve_load(void);
bool resolve_is_bypassed(void); /* a runtime stands before us in the global scope: calls never reach us */
void resolve_after_fork(void);
bool region_tolerates_fewer(const void *code); /* see tolerant.c */
bool region_is_in_object(const void *code, uint32_t loads);

/* The runtime that the code at this address would have been bound to without us, NULL if there is none.
 * What is in the global scope at load is found first by everybody, so it needs no look at the caller. */
static inline const struct runtime *runtime_of(const void *code, enum family family)
{
    const struct runtime *rt = LOAD(&runtime_at_load[family]);
    return LIKELY(rt != NULL) ? rt : runtime_find(code, family);
}

/* The same, but it has this function. `code` alone says no more in generated code: then the caller does, and then
 * whoever has it. NULL if nobody does, so that the program has no way to come here without us. */
#define RUNTIME_WITH(function, code, family)                                                               \
    ({                                                                                                     \
        const struct runtime *having = runtime_of(code, family);                                           \
        if (UNLIKELY(!having || !having->function)) {                                                      \
            having = runtime_instead(code, CALLER, #function);                                             \
            having = having && having->function ? having : NULL;                                           \
        }                                                                                                  \
        having;                                                                                            \
    })

/* scope.c */
void *scope_symbol_in(void *scope, const char *name); /* not ours; leaves no dlerror() behind */
void *scope_symbol_by_users(const char *path, const char *name);
void *scope_symbol_of_only_runtime(enum family family, const char *name);
void *scope_symbol_of_anybody(const char *name);
void *scope_handle_of(const char *path);
void scope_load(void);
uint32_t scope_loads(void);
bool scope_stays_loaded(const void *code); /* it came with the program */

/* tolerant.c */
void tolerant_load(void);
bool tolerant_object(const char *path);

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

/* `asked`: the number that the region asks for itself, 0 = none; `code`: its function. What is given back is
 * to be asked for instead. */
unsigned region_enter(struct region *region, const struct runtime *rt, unsigned asked, const void *code);
void region_leave(const struct region *region);
void region_push(const struct runtime *rt, const struct region *region);
const struct runtime *region_pop(struct region *region);
void team_load(void);
void team_after_fork(void);
bool team_spins_long(void);

#endif
