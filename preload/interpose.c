/* The names that programs built by GCC, and all that ask about dyn-var, find here instead of in their OpenMP
 * runtime. Each of them finds the caller's runtime, lets team.c decide the size, and calls on. */
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>
#include <unistd.h>

/* What the program has said of dyn-var itself. */
static enum { DYNAMIC_UNSET, DYNAMIC_ON, DYNAMIC_OFF } dynamic;

__attribute__((constructor)) static void load(void)
{
    clock_load();
    scope_load();
    team_load();
    tolerant_load();
    resolve_load();
    page_load();
    inherit_load();
}

/* No object of the process defines it. The program can call this only because the loader bound it to us; without us
 * it would have ended with the loader's own message. */
void no_runtime(const char *name)
{
    const char *const parts[] = {"coplace: symbol lookup error: no OpenMP runtime found that defines ", name, "\n"};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0)
            break;
    _exit(127);
}

/* A bare region without any runtime is one thread that runs the function: what that calls sees itself
 * outside of any team, which OpenMP defines as a team of one. */
SEEN void GOMP_parallel(region_fn fn, void *data, unsigned threads, unsigned flags)
{
    const struct runtime *rt = runtime_of(FROM(fn), FAMILY_GNU);
    if (UNLIKELY(!rt || !rt->GOMP_parallel)) {
        fn(data);
        return;
    }
    struct region region;
    rt->GOMP_parallel(fn, data, region_enter(&region, rt, threads, FROM(fn)), flags);
    region_leave(&region);
}

SEEN unsigned GOMP_parallel_reductions(region_fn fn, void *data, unsigned threads, unsigned flags)
{
    const struct runtime *rt = RUNTIME_WITH(GOMP_parallel_reductions, FROM(fn), FAMILY_GNU);
    if (UNLIKELY(!rt))
        no_runtime("GOMP_parallel_reductions");
    struct region region;
    unsigned n = rt->GOMP_parallel_reductions(fn, data, region_enter(&region, rt, threads, FROM(fn)), flags);
    region_leave(&region);
    return n;
}

/* Combined constructs: the runtime sets up the work share before the team starts, so there is no way to
 * run the function without it. */
#define COMBINED(name, parameters, ...)                                                                    \
    SEEN void name parameters                                                                              \
    {                                                                                                      \
        const struct runtime *rt = RUNTIME_WITH(name, FROM(fn), FAMILY_GNU);                               \
        if (UNLIKELY(!rt))                                                                                 \
            no_runtime(#name);                                                                             \
        struct region region;                                                                              \
        threads = region_enter(&region, rt, threads, FROM(fn));                                                      \
        rt->name(fn, data, threads, __VA_ARGS__);                                                          \
        region_leave(&region);                                                                             \
    }

#define CHUNKED_LOOP(name)                                                                                 \
    COMBINED(name,                                                                                         \
             (region_fn fn, void *data, unsigned threads, long start, long end, long step, long chunk,     \
              unsigned flags),                                                                             \
             start, end, step, chunk, flags)

#define RUNTIME_LOOP(name)                                                                                 \
    COMBINED(name,                                                                                         \
             (region_fn fn, void *data, unsigned threads, long start, long end, long step, unsigned flags), \
             start, end, step, flags)

CHUNKED_LOOP(GOMP_parallel_loop_static)
CHUNKED_LOOP(GOMP_parallel_loop_dynamic)
CHUNKED_LOOP(GOMP_parallel_loop_guided)
CHUNKED_LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
CHUNKED_LOOP(GOMP_parallel_loop_nonmonotonic_guided)
RUNTIME_LOOP(GOMP_parallel_loop_runtime)
RUNTIME_LOOP(GOMP_parallel_loop_nonmonotonic_runtime)
RUNTIME_LOOP(GOMP_parallel_loop_maybe_nonmonotonic_runtime)
COMBINED(GOMP_parallel_sections,
         (region_fn fn, void *data, unsigned threads, unsigned count, unsigned flags), count, flags)

/* Programs built before GCC 4.9: start, the caller runs the function itself, end. */
#define COMBINED_START(name, parameters, ...)                                                              \
    SEEN void name parameters                                                                              \
    {                                                                                                      \
        const struct runtime *rt = RUNTIME_WITH(name, FROM(fn), FAMILY_GNU);                               \
        if (UNLIKELY(!rt))                                                                                 \
            no_runtime(#name);                                                                             \
        struct region region;                                                                              \
        threads = region_enter(&region, rt, threads, FROM(fn));                                                      \
        region_push(rt, &region);                                                                          \
        rt->name(fn, data, threads, __VA_ARGS__);                                                          \
    }

#define CHUNKED_LOOP_START(name)                                                                           \
    COMBINED_START(name,                                                                                   \
                   (region_fn fn, void *data, unsigned threads, long start, long end, long step, long chunk), \
                   start, end, step, chunk)

CHUNKED_LOOP_START(GOMP_parallel_loop_static_start)
CHUNKED_LOOP_START(GOMP_parallel_loop_dynamic_start)
CHUNKED_LOOP_START(GOMP_parallel_loop_guided_start)
COMBINED_START(GOMP_parallel_loop_runtime_start,
               (region_fn fn, void *data, unsigned threads, long start, long end, long step), start, end, step)
COMBINED_START(GOMP_parallel_sections_start, (region_fn fn, void *data, unsigned threads, unsigned count), count)

SEEN void GOMP_parallel_start(region_fn fn, void *data, unsigned threads)
{
    const struct runtime *rt = runtime_of(FROM(fn), FAMILY_GNU);
    struct region region = {.kind = REGION_UNCOUNTED};
    if (UNLIKELY(!rt || !rt->GOMP_parallel_start)) {
        region_push(NULL, &region); /* a team of one: the caller runs the function, the end finds this */
        return;
    }
    threads = region_enter(&region, rt, threads, FROM(fn));
    region_push(rt, &region);
    rt->GOMP_parallel_start(fn, data, threads);
}

SEEN void GOMP_parallel_end(void)
{
    struct region region;
    const struct runtime *rt = region_pop(&region);
    if (UNLIKELY(!rt))
        rt = runtime_of(CALLER, FAMILY_GNU);
    if (UNLIKELY(!rt || !rt->GOMP_parallel_end))
        return;
    rt->GOMP_parallel_end();
    region_leave(&region);
}

/* Of the control and query functions only those for dyn-var and the number of processors are taken.
 * omp_get_max_threads() and omp_set_num_threads() stay the runtime's own: what they say is read from it at every region, and
 * unlike a region they carry no function by whose address the right one of several runtimes is known (a
 * return address misleads after a tail call). For dyn-var not knowing does no harm, as it is off by default,
 * nor for the number of processors, which is the same for all.
 *
 * Fortran's names take their arguments by address; the runtime's own versions of them call its C functions
 * without coming through here. */

/* Turning dyn-var on is a licence to give fewer threads, which we use in place of libgomp: its own way, by
 * the load average, would size each team twice. */
static void set_dynamic(const struct runtime *rt, bool on)
{
    struct coplace_page *page = page_get();
    if (page && (!rt || rt->kind != RUNTIME_UNKNOWN)) {
        STORE(&dynamic, on ? DYNAMIC_ON : DYNAMIC_OFF);
        if (!on)
            page_rigid(page, COPLACE_RIGID_SET_DYNAMIC_0);
        else if (LOAD(&page->rigid) == 0)
            return;
    }
    if (LIKELY(rt && rt->omp_set_dynamic))
        rt->omp_set_dynamic(on);
}

SEEN void omp_set_dynamic(int on) { set_dynamic(runtime_of(CALLER, FAMILY_QUERY), on != 0); }
SEEN void omp_set_dynamic_(const int32_t *on) { set_dynamic(runtime_of(CALLER, FAMILY_QUERY), *on != 0); }
SEEN void omp_set_dynamic_8_(const int64_t *on) { set_dynamic(runtime_of(CALLER, FAMILY_QUERY), *on != 0); }

/* What the program set is what it is told, and otherwise what its runtime says: a program whose teams are resized
 * is one whose result does not depend on them, and no program is told anything else than without us. */
static int get_dynamic(const struct runtime *rt)
{
    if (page_get() && LOAD(&dynamic) == DYNAMIC_ON)
        return 1;
    return rt && rt->omp_get_dynamic ? rt->omp_get_dynamic() : 0;
}

/* A program that sizes its teams by the number of processors in mid-run must not take the partition that it
 * has just now for the machine: it would never grow again, or compute something else. While it has not chosen its
 * CPUs itself, the answer is at least what it was when the runtime started. */
static int num_procs(const struct runtime *rt)
{
    struct coplace_page *page = page_get();
    int real = rt && rt->omp_get_num_procs ? rt->omp_get_num_procs() : cpus_allowed();
    if (page && (!rt || rt->kind != RUNTIME_UNKNOWN) && LOAD(&page->target) != 0 && !page_has_own_mask()) {
        int first = (int)LOAD(&page->procs);
        real = first > real ? first : real;
    }
    return real > 0 ? real : 1;
}

SEEN int omp_get_num_procs(void) { return num_procs(runtime_of(CALLER, FAMILY_QUERY)); }
SEEN int32_t omp_get_num_procs_(void) { return num_procs(runtime_of(CALLER, FAMILY_QUERY)); }

SEEN int omp_get_dynamic(void) { return get_dynamic(runtime_of(CALLER, FAMILY_QUERY)); }
SEEN int32_t omp_get_dynamic_(void) { return get_dynamic(runtime_of(CALLER, FAMILY_QUERY)); }
