/* Asking the dynamic loader, without a trace in the program: who defines a name, seen from where. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

void *scope_symbol_in(void *scope, const char *name)
{
    void *p = dlsym(scope, name);
    if (!p)
        dlerror(); /* the program must not find our failure in its own dlerror() */
    return p && !((const char *)p >= __ehdr_start && (const char *)p < _end) ? p : NULL;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *data)
{
    *(uint32_t *)data = size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs
                            ? (uint32_t)(info->dlpi_adds + info->dlpi_subs)
                            : 0;
    return 1;
}

/* How often the loader has loaded or unloaded something. */
uint32_t scope_loads(void)
{
    uint32_t loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    return loads;
}

/* Objects that came with the program stay loaded as long as it runs. Called before it runs. */
static struct {
    uintptr_t from, to;
} *at_start;
static size_t at_start_used;

static int note_start(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t low = info->dlpi_addr + segment->p_vaddr, high = low + segment->p_memsz;
        from = low < from ? low : from;
        to = high > to ? high : to;
    }
    void *all = realloc(at_start, (at_start_used + 1) * sizeof *at_start);
    if (!all)
        return 1;
    at_start = all;
    at_start[at_start_used].from = from;
    at_start[at_start_used++].to = to;
    return 0;
}

void scope_load(void) { dl_iterate_phdr(note_start, NULL); }

bool scope_stays_loaded(const void *code)
{
    for (size_t i = 0; i < at_start_used; i++)
        if ((uintptr_t)code >= at_start[i].from && (uintptr_t)code < at_start[i].to)
            return true;
    return false;
}

/* The loader's own handle of an object that is loaded already; it stays loaded until that is given back. */
void *scope_handle_of(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        dlerror();
    return handle;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A loaded object and what it needs, by its dynamic section. */
struct object {
    const char *path;
    const char *name;    /* its soname, or its file's name */
    const char *strings; /* NULL: no dynamic section */
    const ElfW(Dyn) *dynamic;
    bool reached;
};

struct objects {
    struct object *all;
    size_t used, room;
};

static int collect(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct objects *objects = data;
    if (objects->used == objects->room) {
        size_t room = objects->room ? objects->room * 2 : 128;
        struct object *all = realloc(objects->all, room * sizeof *all);
        if (!all)
            return 1;
        objects->all = all;
        objects->room = room;
    }
    struct object *object = &objects->all[objects->used++];
    *object = (struct object){.path = info->dlpi_name, .name = last_part(info->dlpi_name)};
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object->dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Dyn) *soname = NULL;
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SONAME)
            soname = entry;
        /* Most loaders have made the address absolute. */
        if (entry->d_tag == DT_STRTAB)
            object->strings = (const char *)(entry->d_un.d_ptr +
                                             (entry->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0));
    }
    if (soname && object->strings)
        object->name = object->strings + soname->d_un.d_val;
    return 0;
}

static void reach(struct objects *objects, struct object *from)
{
    from->reached = true;
    for (const ElfW(Dyn) *entry = from->dynamic; from->strings && entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag != DT_NEEDED)
            continue;
        const char *needed = last_part(from->strings + entry->d_un.d_val);
        for (size_t i = 0; i < objects->used; i++)
            if (!objects->all[i].reached && strcmp(objects->all[i].name, needed) == 0)
                reach(objects, &objects->all[i]);
    }
}

/* An object that does not itself name the library it calls is bound through whoever brought it in: the first
 * object that needs it, directly or not, and whose scope holds the name. */
void *scope_symbol_by_users(const char *path, const char *name)
{
    struct objects objects = {0};
    void *symbol = NULL;
    dl_iterate_phdr(collect, &objects);
    size_t caller = 0;
    while (caller < objects.used && strcmp(objects.all[caller].path, path) != 0)
        caller++;
    for (size_t user = 0; user < objects.used && caller < objects.used && !symbol; user++) {
        if (user == caller || !objects.all[user].path[0])
            continue;
        for (size_t i = 0; i < objects.used; i++)
            objects.all[i].reached = false;
        reach(&objects, &objects.all[user]);
        void *handle = objects.all[caller].reached ? scope_handle_of(objects.all[user].path) : NULL;
        symbol = handle ? scope_symbol_in(handle, name) : NULL;
        if (handle)
            dlclose(handle);
    }
    free(objects.all);
    return symbol;
}

/* Whoever was loaded first of those that have it. */
void *scope_symbol_of_anybody(const char *name)
{
    struct objects objects = {0};
    void *symbol = NULL;
    dl_iterate_phdr(collect, &objects);
    for (size_t i = 0; i < objects.used && !symbol; i++) {
        void *handle = objects.all[i].path[0] ? scope_handle_of(objects.all[i].path) : NULL;
        symbol = handle ? scope_symbol_in(handle, name) : NULL;
        if (handle)
            dlclose(handle);
    }
    free(objects.all);
    return symbol;
}

/* Of all objects of the process, the one OpenMP runtime; NULL if there are several: a guess could mix up
 * two, which is worse than none. */
struct only {
    enum family family;
    char path[4096];
    unsigned count;
};

static int looks_like_runtime(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct only *only = data;
    const char *name = last_part(info->dlpi_name);
    bool gnu = strncmp(name, "libgomp", 7) == 0;
    bool llvm = strncmp(name, "libomp", 6) == 0 || strncmp(name, "libiomp", 7) == 0;
    if ((only->family == FAMILY_LLVM ? llvm : gnu || llvm) && strlen(info->dlpi_name) < sizeof only->path) {
        strcpy(only->path, info->dlpi_name);
        only->count++;
    }
    return 0;
}

void *scope_symbol_of_only_runtime(enum family family, const char *name)
{
    struct only only = {.family = family, .count = 0};
    dl_iterate_phdr(looks_like_runtime, &only);
    void *handle = only.count == 1 ? scope_handle_of(only.path) : NULL;
    void *symbol = handle ? scope_symbol_in(handle, name) : NULL;
    if (handle)
        dlclose(handle);
    return symbol;
}
