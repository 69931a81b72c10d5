/* Which OpenMP runtime would this caller have been bound to, were we not here?
 *
 * A library in the global scope at load answers for everybody: the loader looks there first, so RTLD_NEXT
 * gives what all callers would have got. That is nearly every program, and costs one load a call.
 *
 * Otherwise runtimes sit in local scopes (an extension module of Python and its private, renamed libgomp,
 * opened with RTLD_LOCAL), perhaps several of them, and our symbol, being global, hides each from its
 * owner. Then the object that holds the calling code decides: its own dependencies are searched, as the
 * loader would have. The key is the address of the region's function wherever there is one: a return
 * address may lie in another object, when the region was started by a tail call. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <string.h>

#define CALLERS_MAX 256u

/* The code of one object, and what it calls. */
struct caller {
    uintptr_t from;
    uintptr_t bytes;
    const struct runtime *rt;
};

const struct runtime *runtime_at_load;

static struct runtime runtimes[RUNTIMES_MAX];
static unsigned runtimes_used; /* stored last, with release: entries below it do not change */
static struct caller callers[CALLERS_MAX];
static unsigned callers_used; /* the same */
static int lock;              /* guards the two tables only; never held while the loader is called */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_ours(const void *p) { return (const char *)p >= __ehdr_start && (const char *)p < _end; }

static void take_lock(void)
{
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void drop_lock(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

void resolve_after_fork(void) { lock = 0; }

unsigned runtime_count(void) { return __atomic_load_n(&runtimes_used, __ATOMIC_ACQUIRE); }
const struct runtime *runtime_nth(unsigned i) { return &runtimes[i]; }

static void *symbol_in(void *scope, const char *name)
{
    void *p = dlsym(scope, name);
    if (!p)
        dlerror(); /* the program must not find our failure in its own dlerror() */
    return p && !is_ours(p) ? p : NULL;
}

/* The loader's own handle of an object that is loaded already; it then stays loaded. */
static void *handle_of(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        dlerror();
    return handle;
}

static void fill(struct runtime *rt, void *scope)
{
#define X(ret, name, args) *(void **)&rt->name = symbol_in(scope, #name);
    RUNTIME_FUNCTIONS(X)
#undef X
    /* LLVM's and Intel's runtime carry GOMP_ names too, for programs built by GCC; what else they do with
     * team sizes is theirs, so everything is passed on as it came. */
    rt->gnu = symbol_in(scope, "__kmpc_fork_call") == NULL && rt->GOMP_parallel && rt->omp_get_level &&
              rt->omp_get_active_level && rt->omp_get_max_active_levels && rt->omp_get_nested &&
              rt->omp_get_team_size && rt->omp_get_thread_limit && rt->omp_get_max_threads &&
              rt->omp_get_dynamic && rt->omp_get_num_procs;
}

/* The runtime to which this symbol belongs; made known on its first use. */
static const struct runtime *runtime_with(const void *symbol)
{
    Dl_info info;
    if (!dladdr(symbol, &info) || !info.dli_fname)
        return NULL;
    for (unsigned i = 0; i < runtime_count(); i++)
        if (runtimes[i].base == info.dli_fbase)
            return &runtimes[i];

    struct runtime found = {.base = info.dli_fbase};
    void *handle = handle_of(info.dli_fname);
    fill(&found, handle ? handle : RTLD_NEXT);

    const struct runtime *rt = NULL;
    bool fresh = false;
    take_lock();
    for (unsigned i = 0; i < runtimes_used && !rt; i++)
        if (runtimes[i].base == found.base)
            rt = &runtimes[i];
    if (!rt && runtimes_used < RUNTIMES_MAX) {
        found.index = runtimes_used;
        runtimes[runtimes_used] = found;
        rt = &runtimes[runtimes_used];
        __atomic_store_n(&runtimes_used, runtimes_used + 1, __ATOMIC_RELEASE);
        fresh = true;
    }
    drop_lock();
    if (fresh)
        page_runtime_found(rt);
    return rt;
}

struct search {
    uintptr_t code;
    struct caller object;
    const char *path;
};

static int covers(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    uintptr_t from = UINTPTR_MAX, to = 0;
    bool inside = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t low = info->dlpi_addr + segment->p_vaddr, high = low + segment->p_memsz;
        inside |= search->code >= low && search->code < high;
        from = low < from ? low : from;
        to = high > to ? high : to;
    }
    if (!inside)
        return 0;
    search->object.from = from;
    search->object.bytes = to - from;
    search->path = info->dlpi_name;
    return 1;
}

/* Of all objects of the process, the one OpenMP runtime; NULL if there are several: a guess could mix up
 * two, which is worse than none. */
struct only {
    char path[4096];
    unsigned count;
};

static int looks_like_runtime(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct only *only = data;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    if (strncmp(name, "libgomp", 7) == 0 && strlen(info->dlpi_name) < sizeof only->path) {
        strcpy(only->path, info->dlpi_name);
        only->count++;
    }
    return 0;
}

static void *symbol_of_only_runtime(const char *wanted)
{
    struct only only = {.count = 0};
    dl_iterate_phdr(looks_like_runtime, &only);
    void *handle = only.count == 1 ? handle_of(only.path) : NULL;
    return handle ? symbol_in(handle, wanted) : NULL;
}

const struct runtime *runtime_find(const void *code, const char *wanted)
{
    unsigned known = __atomic_load_n(&callers_used, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < known; i++)
        if ((uintptr_t)code - callers[i].from < callers[i].bytes)
            return callers[i].rt;

    struct search search = {.code = (uintptr_t)code};
    bool in_object = dl_iterate_phdr(covers, &search) == 1;
    /* Kept for ever if the object gets into the table: unloaded, another could come to its address. */
    void *handle = in_object && search.path[0] ? handle_of(search.path) : NULL;
    void *symbol = symbol_in(RTLD_NEXT, wanted);
    if (!symbol && handle)
        symbol = symbol_in(handle, wanted);
    if (!symbol)
        symbol = symbol_of_only_runtime(wanted);
    const struct runtime *rt = symbol ? runtime_with(symbol) : NULL;
    if (!rt) {
        /* For a region only: who asks about dyn-var without a runtime of its own may be a tail call. */
        if (page_get() && wanted[0] == 'G')
            page_rigid(page_get(), COPLACE_RIGID_RUNTIME_UNKNOWN);
        if (handle)
            dlclose(handle);
        return NULL;
    }
    if (!in_object)
        return rt; /* generated code: looked up again each time */
    take_lock();
    if (callers_used < CALLERS_MAX) {
        search.object.rt = rt;
        callers[callers_used] = search.object;
        __atomic_store_n(&callers_used, callers_used + 1, __ATOMIC_RELEASE);
    }
    drop_lock();
    return rt;
}

bool resolve_is_bypassed(void)
{
    const void *p = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    return p != NULL && !is_ours(p);
}

void resolve_load(void)
{
    void *symbol = symbol_in(RTLD_NEXT, "GOMP_parallel");
    if (!symbol)
        symbol = symbol_in(RTLD_NEXT, "omp_get_max_threads");
    if (!symbol)
        return;
    STORE(&runtime_at_load, runtime_with(symbol));
}
