/* What a program sees at its start is the widest that it may ever get: libgomp reads the CPU mask once, when it is
 * loaded, and one that is loaded while the program stands confined to one CPU (a Python module imported late, a
 * process started late) would keep to one thread for ever. So the mask of the program's first process, from
 * before it was confined, is kept beside the pages, and a libgomp that asks is told of it.
 *
 * Only while the node has a wish, as it alone confines; not where the program chose its CPUs itself, or has its
 * threads bound by the runtime, which would pin them to what it is told. LLVM's runtime asks the kernel directly and does not come by here. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cpu_set_t widest;
static bool widest_known;

int cpus_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

static bool binds_threads(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = secure_getenv(names[i]);
        if (value && *value && !text_is(value, "false"))
            return true;
    }
    return false;
}

void mask_load(void)
{
    static bool loaded;
    cpu_set_t now, first;
    if (loaded)
        return;
    loaded = true; /* no thread but the first exists yet */
    page_find_directory();
    if (page_has_own_mask() || binds_threads() || sched_getaffinity(0, sizeof now, &now) != 0)
        return;
    int fd = page_open_file("cpus", O_RDWR | O_CREAT);
    if (fd < 0)
        return;
    ssize_t got = pread(fd, &first, sizeof first, 0);
    if (got == 0) {
        first = now;
        got = pwrite(fd, &first, sizeof first, 0);
    }
    close(fd);
    if (got == (ssize_t)sizeof first) {
        CPU_OR(&widest, &first, &now);
        widest_known = true;
    }
}

/* The next definition behind us, which is the C library's own. */
static void *real(const char *name) { return scope_symbol_in(RTLD_NEXT, name); }

static bool is_libgomp(const void *code)
{
    Dl_info info;
    if (!dladdr(code, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return strncmp(slash ? slash + 1 : info.dli_fname, "libgomp", 7) == 0;
}

SEEN int pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *set)
{
    static int (*next)(pthread_t, size_t, cpu_set_t *);
    mask_load();
    if (!LOAD(&next))
        STORE(&next, (int (*)(pthread_t, size_t, cpu_set_t *))(uintptr_t)real("pthread_getaffinity_np"));
    int result = next(thread, bytes, set);
    if (result == 0 && LOAD(&widest_known) && !page_has_own_mask() && page_has_wish() &&
        is_libgomp(CALLER)) {
        size_t words = (bytes < sizeof widest ? bytes : sizeof widest) / sizeof(unsigned long);
        for (size_t i = 0; i < words; i++)
            ((unsigned long *)set)[i] |= ((const unsigned long *)&widest)[i];
    }
    return result;
}

SEEN int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    static int (*next)(pid_t, size_t, const cpu_set_t *);
    if (!LOAD(&next))
        STORE(&next, (int (*)(pid_t, size_t, const cpu_set_t *))(uintptr_t)real("sched_setaffinity"));
    int result = next(pid, bytes, set);
    if (result == 0 && (pid == 0 || pid == getpid()))
        page_sets_own_mask();
    return result;
}
