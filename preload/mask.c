/* The CPUs that a program may use: what it is told, and what it chooses.
 *
 * What a program sees at its start is the widest that it may ever get: libgomp reads the CPU mask once, when it is
 * loaded, and one that is loaded while the program stands confined to one CPU (a Python module imported late, a
 * process started late) would keep to one thread for ever. So the mask of the program's first process, from
 * before it was confined, is kept beside the pages, and a libgomp that asks is told of it.
 *
 * Only while the node has a wish, as it alone confines; not where the program chose its CPUs itself, or has its
 * threads bound by the runtime, which would pin them to what it is told. LLVM's runtime asks the kernel directly and does not come by here.
 *
 * A call that chooses CPUs goes to the kernel as it came, which grants it: the node confines by masks, and they
 * forbid nothing. Which thread chose is kept in the page, so that the node leaves it where it wants to be, even if
 * that is where the node had put it. One exception: libraries that look at the machine bind their thread to one CPU
 * after the other and then to what it had before. If that was a place that the node gave it, the thread would keep to
 * that place for ever; so it gets back what it would have had without the node. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In glibc's `struct pthread`, which is larger, the id has stood between these on all architectures. */
#define TID_FROM 64u
#define TID_TO 1024u

static cpu_set_t widest;
static bool widest_known;

/* What the calling thread was told before it chose anything. */
static __thread struct {
    cpu_set_t told;
    bool told_known;
    bool chose;
} mine __attribute__((tls_model("initial-exec")));

/* Where the C library keeps the kernel's id of a thread in what its handle points to; 0 = not found. It has no call
 * that tells it. */
static size_t tid_offset;
extern const char *gnu_get_libc_version(void) __attribute__((weak)); /* musl has none */

static void find_tid_offset(void)
{
    const char *thread = (const char *)pthread_self();
    pid_t own = (pid_t)syscall(SYS_gettid);
    size_t found = 0;
    if (!gnu_get_libc_version)
        return;
    for (size_t at = TID_FROM; at < TID_TO; at += sizeof(pid_t))
        if (*(const pid_t *)(const void *)(thread + at) == own) {
            if (found)
                return;
            found = at;
        }
    tid_offset = found;
}

static bool is_own_thread(pid_t tid) { return tid > 0 && syscall(SYS_tgkill, getpid(), tid, 0) == 0; }

/* The kernel's id of a thread that lives, 0 where it cannot be told. */
static pid_t tid_of(pthread_t thread)
{
    if (pthread_equal(thread, pthread_self()))
        return (pid_t)syscall(SYS_gettid);
    pid_t tid = tid_offset ? __atomic_load_n((const pid_t *)(thread + tid_offset), __ATOMIC_RELAXED) : 0;
    return is_own_thread(tid) ? tid : 0;
}

static bool kernel_mask(cpu_set_t *set)
{
    CPU_ZERO(set);
    return syscall(SYS_sched_getaffinity, 0, sizeof *set, set) > 0;
}

int cpus_allowed(void)
{
    cpu_set_t set;
    return kernel_mask(&set) ? CPU_COUNT(&set) : 0;
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
    find_tid_offset();
    if (page_has_own_mask() || binds_threads() || !kernel_mask(&now))
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

/* A caller's set, which may be shorter than ours, or longer: of CPUs that we do not know it says nothing. */
static void copy_set(cpu_set_t *to, size_t bytes, const cpu_set_t *from)
{
    CPU_ZERO(to);
    memcpy(to, from, bytes < sizeof *to ? bytes : sizeof *to);
}

static void was_told(size_t bytes, const cpu_set_t *set)
{
    if (mine.chose)
        return;
    copy_set(&mine.told, bytes, set);
    mine.told_known = true;
}

/* Keeps in the page whether a thread of this process chose its CPUs. */
static void keep_choice(pid_t tid, bool chose)
{
    struct coplace_page *page = page_get();
    if (!page)
        return;
    uint32_t *slots = page->chose_cpus, id = (uint32_t)tid, free_one = 0;
    unsigned at = 0;
    while (at < COPLACE_CHOSE_CPUS && LOAD(&slots[at]) != id)
        at++;
    if (!chose && at < COPLACE_CHOSE_CPUS)
        STORE(&slots[at], 0u);
    if (!chose || at < COPLACE_CHOSE_CPUS)
        return;
    for (at = 0; at < COPLACE_CHOSE_CPUS; at++, free_one = 0)
        if (__atomic_compare_exchange_n(&slots[at], &free_one, id, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    /* Threads have come and gone, or there are more than anybody needs to know of. */
    STORE(&slots[id % COPLACE_CHOSE_CPUS], id);
}

/* A thread of this process has these CPUs now, by its program's choice. */
static void has_chosen(pid_t tid, size_t bytes, const cpu_set_t *set)
{
    cpu_set_t asked, both;
    copy_set(&asked, bytes, set);
    CPU_AND(&both, &asked, &widest);
    bool anywhere = LOAD(&widest_known) && CPU_EQUAL(&both, &widest);
    if (!anywhere)
        page_sets_own_mask();
    if (tid != 0)
        keep_choice(tid, !anywhere);
    if (tid == (pid_t)syscall(SYS_gettid))
        mine.chose = !anywhere;
}

/* What is to be set instead of `set` for the calling thread: what it had before the node confined it, if `set` is what
 * it was told then. */
static const cpu_set_t *instead_of(size_t *bytes, const cpu_set_t *set)
{
    cpu_set_t asked;
    if (!set || !mine.told_known || !LOAD(&widest_known) || !page_has_wish())
        return set;
    copy_set(&asked, *bytes, set);
    if (!CPU_EQUAL(&asked, &mine.told))
        return set;
    *bytes = sizeof widest;
    return &widest;
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
    if (result == 0 && pthread_equal(thread, pthread_self()))
        was_told(bytes, set);
    return result;
}

SEEN int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    static int (*next)(pid_t, size_t, cpu_set_t *);
    if (!LOAD(&next))
        STORE(&next, (int (*)(pid_t, size_t, cpu_set_t *))(uintptr_t)real("sched_getaffinity"));
    int result = next(pid, bytes, set);
    if (result == 0 && (pid == 0 || pid == (pid_t)syscall(SYS_gettid)))
        was_told(bytes, set);
    return result;
}

SEEN int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    static int (*next)(pid_t, size_t, const cpu_set_t *);
    if (!LOAD(&next))
        STORE(&next, (int (*)(pid_t, size_t, const cpu_set_t *))(uintptr_t)real("sched_setaffinity"));
    pid_t own = (pid_t)syscall(SYS_gettid);
    if (pid == 0 || pid == own)
        set = instead_of(&bytes, set);
    int result = next(pid, bytes, set);
    /* Of another process nothing is to be kept in this one's page. */
    if (result == 0 && (pid == 0 || pid == own || is_own_thread(pid)))
        has_chosen(pid == 0 ? own : pid, bytes, set);
    return result;
}

SEEN int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *set)
{
    static int (*next)(pthread_t, size_t, const cpu_set_t *);
    if (!LOAD(&next))
        STORE(&next, (int (*)(pthread_t, size_t, const cpu_set_t *))(uintptr_t)real("pthread_setaffinity_np"));
    if (pthread_equal(thread, pthread_self()))
        set = instead_of(&bytes, set);
    int result = next(thread, bytes, set);
    if (result == 0)
        has_chosen(tid_of(thread), bytes, set);
    return result;
}

/* A thread that is made with this mask has it, whatever the node's place is. The node sees that. */
SEEN int pthread_attr_setaffinity_np(pthread_attr_t *attr, size_t bytes, const cpu_set_t *set)
{
    static int (*next)(pthread_attr_t *, size_t, const cpu_set_t *);
    if (!LOAD(&next))
        STORE(&next, (int (*)(pthread_attr_t *, size_t, const cpu_set_t *))(uintptr_t)real("pthread_attr_setaffinity_np"));
    int result = next(attr, bytes, set);
    if (result == 0 && bytes != 0)
        has_chosen(0, bytes, set);
    return result;
}
