/* Which OpenMP runtime would this caller have been bound to, were we not here?
 *
 * A library in the global scope at load answers for everybody: the loader looks there first, so RTLD_NEXT
 * gives what all callers would have got. That is nearly every program, and costs one load a call.
 *
 * Otherwise runtimes sit in local scopes (an extension module of Python and its private, renamed libgomp,
 * opened with RTLD_LOCAL), perhaps several of them, and our symbol, being global, hides each from its
 * owner. Then the object that holds the calling code decides: its own dependencies are searched, as the
 * loader would have, then those of the objects through which it came. The key is the address of the region's
 * function wherever there is one: a return address may lie in another object, when the region was started by
 * a tail call. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>

#define CALLERS_MAX 256u

/* One object with code that calls a runtime. The program may unload it at any time, and another may come to its
 * address: unless it came with the program, what is known of it holds for as long as nothing is unloaded or
 * loaded. */
struct caller {
    uintptr_t from;
    uintptr_t bytes;
    bool stays;
    uint32_t loads; /* when it was looked at */
    bool tolerates_fewer;
    const struct runtime *rt[FAMILIES]; /* NULL: not looked up, or not found yet */
};

/* Entries are read without a lock and used again: `version` is odd while one is written, and differs after. */
struct entry {
    uint32_t version;
    struct caller caller;
};

const struct runtime *runtime_at_load[FAMILIES];

/* A name that every runtime of the family defines. */
static const char *const anchor[FAMILIES] = {"GOMP_parallel", "__kmpc_fork_call", "omp_get_max_threads"};

static const struct runtime *latest; /* stored with release: an entry does not change, and stays */
static struct entry callers[CALLERS_MAX];
static unsigned callers_used; /* stored last, with release */
static int lock;              /* guards them only; never held while the loader is called */

static void take_lock(void)
{
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void drop_lock(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

void resolve_after_fork(void) { drop_lock(); }

const struct runtime *runtime_latest(void) { return __atomic_load_n(&latest, __ATOMIC_ACQUIRE); }
unsigned runtime_count(void) { return runtime_latest() ? runtime_latest()->index + 1 : 0; }

static const struct runtime *runtime_at(const void *base)
{
    const struct runtime *rt = runtime_latest();
    while (rt && rt->base != base)
        rt = rt->earlier;
    return rt;
}

static void fill(struct runtime *rt, void *scope)
{
#define X(ret, name, args) *(void **)&rt->name = scope_symbol_in(scope, #name);
    RUNTIME_FUNCTIONS(X)
#undef X
    bool answers = rt->omp_get_level && rt->omp_get_active_level && rt->omp_get_max_active_levels &&
                   rt->omp_get_team_size && rt->omp_get_thread_limit && rt->omp_get_max_threads &&
                   rt->omp_get_dynamic && rt->omp_get_num_procs;
    if (answers && rt->__kmpc_fork_call && rt->__kmpc_push_num_threads && rt->__kmpc_global_thread_num)
        rt->kind = RUNTIME_LLVM;
    else if (answers && rt->GOMP_parallel && rt->omp_get_nested && !rt->__kmpc_fork_call)
        rt->kind = RUNTIME_GNU;
}

/* The runtime to which this symbol belongs; made known on its first use. */
static const struct runtime *runtime_with(const void *symbol)
{
    Dl_info info;
    if (!dladdr(symbol, &info) || !info.dli_fname)
        return NULL;
    const struct runtime *rt = runtime_at(info.dli_fbase);
    struct runtime *fresh = rt ? NULL : calloc(1, sizeof *fresh);
    if (!fresh)
        return rt;
    fresh->base = info.dli_fbase;
    void *handle = scope_handle_of(info.dli_fname);
    fill(fresh, handle ? handle : RTLD_NEXT);

    take_lock();
    rt = runtime_at(fresh->base);
    if (!rt) {
        fresh->index = runtime_count();
        fresh->earlier = latest;
        __atomic_store_n(&latest, fresh, __ATOMIC_RELEASE);
    }
    drop_lock();
    if (rt) { /* another thread came first */
        free(fresh);
        return rt;
    }
    page_runtime_found(fresh);
    return fresh;
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

static bool holds(const struct caller *caller, const void *code, uint32_t loads)
{
    return (uintptr_t)code - caller->from < caller->bytes && (caller->stays || caller->loads == loads);
}

/* A copy of what is known of the object with this code. `loads`: by now, where it may have been unloaded. */
static bool caller_known(const void *code, uint32_t loads, struct caller *found)
{
    unsigned known = __atomic_load_n(&callers_used, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < known; i++) {
        uint32_t version = __atomic_load_n(&callers[i].version, __ATOMIC_ACQUIRE);
        *found = callers[i].caller;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(version & 1) && LOAD(&callers[i].version) == version && holds(found, code, loads))
            return true;
    }
    return false;
}

static uint32_t loads_for(const void *code) { return scope_stays_loaded(code) ? 0 : scope_loads(); }

/* Puts what was found into the table, in the place of what is known already or does not hold any more; not at all
 * if the table is full. Runtimes that are known already stay known. */
static void caller_learn(struct caller fresh)
{
    take_lock();
    struct entry *entry = NULL;
    for (unsigned i = 0; i < callers_used && !entry; i++) {
        const struct caller *old = &callers[i].caller;
        bool same = old->from == fresh.from && old->bytes == fresh.bytes && (old->stays || old->loads == fresh.loads);
        for (enum family family = 0; same && family < FAMILIES; family++)
            if (!fresh.rt[family])
                fresh.rt[family] = old->rt[family];
        if (same || (!old->stays && old->loads != fresh.loads && !fresh.stays))
            entry = &callers[i];
    }
    bool is_new = !entry && callers_used < CALLERS_MAX;
    if (is_new)
        entry = &callers[callers_used];
    if (entry) {
        uint32_t version = entry->version;
        __atomic_store_n(&entry->version, version + 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        entry->caller = fresh;
        __atomic_store_n(&entry->version, version + 2, __ATOMIC_RELEASE);
        if (is_new)
            __atomic_store_n(&callers_used, callers_used + 1, __ATOMIC_RELEASE);
    }
    drop_lock();
}

static bool find_object(const void *code, struct search *search)
{
    uint32_t loads = loads_for(code);
    *search = (struct search){.code = (uintptr_t)code};
    if (dl_iterate_phdr(covers, search) != 1)
        return false;
    search->object.stays = scope_stays_loaded(code);
    search->object.loads = loads;
    search->object.tolerates_fewer = tolerant_object(search->path);
    return true;
}

/* What the name would have been bound to in the object that was found, NULL for none. `handle`: its own, if it is a
 * library. */
static void *bound_in(const struct search *search, void *handle, const char *name)
{
    void *symbol = scope_symbol_in(RTLD_NEXT, name);
    if (!symbol && handle)
        symbol = scope_symbol_in(handle, name);
    if (!symbol && search->path && search->path[0])
        symbol = scope_symbol_by_users(search->path, name);
    return symbol;
}

const struct runtime *runtime_find(const void *code, enum family family)
{
    struct caller caller;
    if (caller_known(code, loads_for(code), &caller) && caller.rt[family])
        return caller.rt[family];

    struct search search;
    bool in_object = find_object(code, &search);
    void *handle = in_object && search.path[0] ? scope_handle_of(search.path) : NULL;
    void *symbol = bound_in(&search, handle, anchor[family]);
    if (!symbol)
        symbol = scope_symbol_of_only_runtime(family, anchor[family]);
    const struct runtime *rt = symbol ? runtime_with(symbol) : NULL;
    if (handle)
        dlclose(handle);
    if (!rt) {
        /* For a region only: who asks about dyn-var without a runtime of its own may be a tail call. */
        if (page_get() && family != FAMILY_QUERY)
            page_rigid(page_get(), COPLACE_RIGID_RUNTIME_UNKNOWN);
        return NULL;
    }
    if (in_object) { /* generated code is looked up again each time */
        search.object.rt[family] = rt;
        caller_learn(search.object);
    }
    return rt;
}

/* A call that cannot go without a runtime, from code that no object holds (a compiler inside the program made it),
 * or to a function that the runtime which was found does not have. Ending the program is no choice: without
 * us it found its way. Who called may be a jump's wrong one, so it comes after the code. */
const struct runtime *runtime_instead(const void *code, const void *caller, const char *name)
{
    const void *const known[] = {code, caller};
    const struct runtime *rt = NULL;
    for (unsigned i = 0; i < sizeof known / sizeof *known && !rt; i++) {
        struct search search = {.code = (uintptr_t)known[i]};
        bool in_library = dl_iterate_phdr(covers, &search) == 1 && search.path[0];
        void *handle = in_library ? scope_handle_of(search.path) : NULL;
        void *symbol = bound_in(&search, handle, name);
        rt = symbol ? runtime_with(symbol) : NULL;
        if (handle)
            dlclose(handle);
    }
    if (!rt) {
        void *symbol = scope_symbol_of_anybody(name);
        rt = symbol ? runtime_with(symbol) : NULL;
    }
    return rt;
}

bool region_tolerates_fewer(const void *code)
{
    struct caller caller;
    if (LIKELY(caller_known(code, loads_for(code), &caller)))
        return caller.tolerates_fewer;
    struct search search;
    if (!find_object(code, &search))
        return false;
    caller_learn(search.object);
    return search.object.tolerates_fewer;
}

bool region_is_in_object(const void *code, uint32_t loads)
{
    struct caller caller;
    struct search search;
    if (LIKELY(caller_known(code, loads, &caller)))
        return true;
    if (!find_object(code, &search))
        return false;
    caller_learn(search.object);
    return true;
}

bool resolve_is_bypassed(void)
{
    return scope_symbol_in(RTLD_DEFAULT, anchor[FAMILY_GNU]) || scope_symbol_in(RTLD_DEFAULT, anchor[FAMILY_LLVM]);
}

void resolve_load(void)
{
    for (enum family family = 0; family < FAMILIES; family++) {
        void *symbol = scope_symbol_in(RTLD_NEXT, anchor[family]);
        if (symbol)
            STORE(&runtime_at_load[family], runtime_with(symbol));
    }
}
