/* The names that programs built by clang (and Intel's compilers) find here instead of in LLVM's OpenMP runtime.
 *
 * A region is `push_num_threads` if it asks for a number, then `fork_call` with the function and its captured
 * variables behind it. A number pushed holds for the next fork only and leaves every setting of the program as it
 * is, so it is also how we ask for fewer. Work sharing, tasks, sections and cancellation go by the team that there
 * is and never come through here. A region that is serial by its `if` clause does not either. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>

/* What the program has pushed for this thread's next fork. */
static __thread int32_t pushed_threads __attribute__((tls_model("initial-exec")));
static __thread int32_t pushed_teams __attribute__((tls_model("initial-exec")));

typedef void fork_fn(void *, int32_t, micro_fn, ...);

#define A4(i) captured[i], captured[(i) + 1], captured[(i) + 2], captured[(i) + 3]
#define A16(i) A4(i), A4((i) + 4), A4((i) + 8), A4((i) + 12)
#define A64(i) A16(i), A16((i) + 16), A16((i) + 32), A16((i) + 48)
#define A256(i) A64(i), A64((i) + 64), A64((i) + 128), A64((i) + 192)
#define CAPTURED_MOST 1024

/* Calls on with all captured variables, each as large as a pointer. The runtime reads `count` of them, so that
 * more than that may be passed. */
static void fork_on(fork_fn *fork, void *where, int32_t count, micro_fn micro, va_list list)
{
    void *captured[CAPTURED_MOST];
    int32_t rounded = count <= 4 ? 4 : count <= 16 ? 16 : count <= 64 ? 64 : count <= 256 ? 256 : CAPTURED_MOST;
    if (UNLIKELY(count > CAPTURED_MOST))
        end_program("a parallel region with more than 1024 captured variables", "; run it without coplace");
    for (int32_t i = 0; i < rounded; i++)
        captured[i] = i < count ? va_arg(list, void *) : NULL;
    switch (rounded) {
    case 4: fork(where, count, micro, A4(0)); break;
    case 16: fork(where, count, micro, A16(0)); break;
    case 64: fork(where, count, micro, A64(0)); break;
    case 256: fork(where, count, micro, A256(0)); break;
    default: fork(where, count, micro, A256(0), A256(256), A256(512), A256(768)); break;
    }
}

SEEN void __kmpc_fork_call(void *where, int32_t count, micro_fn micro, ...)
{
    const struct runtime *rt = runtime_of(FROM(micro), FAMILY_LLVM);
    if (UNLIKELY(!rt || !rt->__kmpc_fork_call))
        no_runtime("__kmpc_fork_call");
    unsigned asked = pushed_threads > 0 ? (unsigned)pushed_threads : 0;
    pushed_threads = 0;
    struct region region;
    unsigned n = region_enter(&region, rt, asked, FROM(micro));
    if (n != asked)
        rt->__kmpc_push_num_threads(where, rt->__kmpc_global_thread_num(where), (int32_t)n);
    va_list list;
    va_start(list, micro);
    fork_on(rt->__kmpc_fork_call, where, count, micro, list);
    va_end(list);
    region_leave(&region);
}

SEEN void __kmpc_push_num_threads(void *where, int32_t thread, int32_t n)
{
    const struct runtime *rt = runtime_of(CALLER, FAMILY_LLVM);
    pushed_threads = n;
    if (LIKELY(rt && rt->__kmpc_push_num_threads))
        rt->__kmpc_push_num_threads(where, thread, n);
}

static void counts_on_its_number(void)
{
    if (page_get())
        page_rigid(page_get(), COPLACE_RIGID_EXPLICIT_NUM_THREADS);
}

/* OpenMP 6.0: the program ends, or says so, if it gets another number. */
SEEN void __kmpc_push_num_threads_strict(void *where, int32_t thread, int32_t n, int severity, const char *message)
{
    const struct runtime *rt = runtime_of(CALLER, FAMILY_LLVM);
    counts_on_its_number();
    if (LIKELY(rt && rt->__kmpc_push_num_threads_strict))
        rt->__kmpc_push_num_threads_strict(where, thread, n, severity, message);
}

/* A league of several teams runs a thread for each, beside the regions that those start; its number is the
 * program's own. One team (the default) is its parallel regions and no more. */
static void push_teams(int32_t n)
{
    pushed_teams = n;
    if (n > 1)
        counts_on_its_number();
}

SEEN void __kmpc_push_num_teams(void *where, int32_t thread, int32_t teams, int32_t threads)
{
    const struct runtime *rt = runtime_of(CALLER, FAMILY_LLVM);
    push_teams(teams);
    if (LIKELY(rt && rt->__kmpc_push_num_teams))
        rt->__kmpc_push_num_teams(where, thread, teams, threads);
}

SEEN void __kmpc_push_num_teams_51(void *where, int32_t thread, int32_t fewest, int32_t most, int32_t threads)
{
    const struct runtime *rt = runtime_of(CALLER, FAMILY_LLVM);
    push_teams(most);
    if (LIKELY(rt && rt->__kmpc_push_num_teams_51))
        rt->__kmpc_push_num_teams_51(where, thread, fewest, most, threads);
}

SEEN void __kmpc_fork_teams(void *where, int32_t count, micro_fn micro, ...)
{
    const struct runtime *rt = runtime_of(FROM(micro), FAMILY_LLVM);
    if (UNLIKELY(!rt || !rt->__kmpc_fork_teams))
        no_runtime("__kmpc_fork_teams");
    struct coplace_page *page = page_get();
    uint32_t epoch = page_epoch, beside = pushed_teams > 1 ? (uint32_t)pushed_teams - 1 : 0;
    pushed_teams = 0;
    if (page && beside)
        __atomic_fetch_add(&page->nested, beside, __ATOMIC_SEQ_CST);
    va_list list;
    va_start(list, micro);
    fork_on(rt->__kmpc_fork_teams, where, count, micro, list);
    va_end(list);
    if (page && beside && epoch == page_epoch)
        __atomic_fetch_sub(&page->nested, beside, __ATOMIC_SEQ_CST);
}
