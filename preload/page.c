/* Making, finding and refilling the page of this process. Only plain system calls: all of it also runs in
 * the child of a fork of a threaded program, where nothing that takes a lock may be called. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

struct coplace_page *page_live;
uint32_t page_epoch;

static char path[PATH_MAX]; /* "<dir>/", the name is put behind it */
static size_t dir_len;      /* 0: no directory, inert for ever */
static bool declared_rigid; /* by the environment */
static bool put_off;        /* this fork's child has no page yet */
static bool own_mask;       /* the program has set its CPU mask itself */
static uint32_t loads;      /* as last looked at */
static const struct coplace_page empty;

/* Case-insensitive, blanks around it allowed, as libgomp reads its own variables. */
bool text_is(const char *text, const char *word)
{
    while (*text == ' ' || *text == '\t')
        text++;
    for (; *word; text++, word++)
        if ((*text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a' : *text) != *word)
            return false;
    while (*text == ' ' || *text == '\t')
        text++;
    return *text == '\0';
}

/* The PID namespace that every machine begins with (the kernel's PROC_PID_INIT_INO). */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCul

/* The number of our PID namespace; where it cannot be told, that of the first. */
static unsigned long own_namespace(void)
{
    static const char before[] = "pid:[";
    char text[64];
    unsigned long number = 0;
    ssize_t got = readlink("/proc/self/ns/pid", text, sizeof text - 1);
    if (got < (ssize_t)sizeof before || memcmp(text, before, sizeof before - 1) != 0)
        return FIRST_PID_NAMESPACE;
    text[got] = '\0';
    for (const char *at = text + sizeof before - 1; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (unsigned long)(*at - '0');
    return number;
}

static size_t put_number(size_t at, unsigned long number)
{
    char digits[24];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    for (size_t i = 0; i < n; i++)
        path[at + i] = digits[n - 1 - i];
    return at + n;
}

/* Puts the name of that process's page behind the directory: its number and, as many containers have a
 * process 2, that of its PID namespace, unless that is the first. */
static void name_pid(pid_t pid)
{
    unsigned long namespace = own_namespace();
    size_t end = put_number(dir_len, (unsigned long)pid);
    if (namespace != FIRST_PID_NAMESPACE) {
        path[end++] = '-';
        end = put_number(end, namespace);
    }
    path[end] = '\0';
}

/* Field 22 of /proc/self/stat, in clock ticks since boot. The name in field 2 may hold blanks and brackets,
 * so counting starts behind the last bracket. */
static uint64_t own_start_time(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    if (!at)
        return 0;
    for (unsigned field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (!at)
            return 0;
    }
    uint64_t value = 0;
    for (at++; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

int page_open_file(const char *name, int flags)
{
    if (dir_len == 0)
        return -1;
    memcpy(path + dir_len, name, strlen(name) + 1);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Whether the page of that process says that it chose its CPUs itself. */
static bool chose_cpus(pid_t pid, uint64_t start_time)
{
    struct coplace_page page;
    name_pid(pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool is_its = pread(fd, &page, sizeof page, 0) == (ssize_t)sizeof page && page.magic == COPLACE_PAGE_MAGIC &&
                  (start_time == 0 || page.start_time == start_time);
    close(fd);
    return is_its && page.state & COPLACE_STATE_SET_OWN_MASK;
}

/* Kept by exec, and by those that it starts (taskset does both). */
bool page_has_own_mask(void)
{
    static bool asked;
    if (!asked && dir_len != 0) {
        asked = true;
        own_mask = own_mask || chose_cpus(getpid(), own_start_time()) || chose_cpus(getppid(), 0);
    }
    return own_mask;
}

static void read_default(uint32_t *target, uint32_t *rigid, uint64_t *resizable)
{
    struct coplace_page page;
    int fd = page_open_file("default", O_RDONLY);
    if (fd < 0)
        return;
    if (pread(fd, &page, sizeof page, 0) == (ssize_t)sizeof page && page.magic == COPLACE_PAGE_MAGIC &&
        page.version == COPLACE_PAGE_VERSION) {
        *target = page.target;
        *rigid = page.rigid & COPLACE_RIGID_DECLARED;
        *resizable = page.resizable == COPLACE_RESIZABLE_BY_WORD ? page.resizable : 0;
    }
    close(fd);
}

bool page_has_wish(void)
{
    uint32_t target = 0, rigid = 0;
    uint64_t resizable = 0;
    const struct coplace_page *page = page_get();
    if (page)
        target = LOAD(&page->target);
    else
        read_default(&target, &rigid, &resizable);
    return target != 0;
}

static struct coplace_page *map(int fd, void *over)
{
    void *at = mmap(over, sizeof(struct coplace_page), PROT_READ | PROT_WRITE,
                    MAP_SHARED | (over ? MAP_FIXED : 0), fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* The page that this very process made before it called exec, or NULL; any other file of that name is a
 * leftover of a process that had our pid, and is taken away (whoever maps it keeps what it holds). */
static struct coplace_page *map_own_earlier(pid_t pid, uint64_t start_time)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    struct coplace_page *page = NULL;
    if (start_time != 0 && lseek(fd, 0, SEEK_END) == (off_t)sizeof *page)
        page = map(fd, NULL);
    close(fd);
    if (page && page->magic == COPLACE_PAGE_MAGIC && page->version == COPLACE_PAGE_VERSION &&
        page->pid == pid && page->start_time == start_time)
        return page;
    if (page)
        munmap(page, sizeof *page);
    unlink(path);
    return NULL;
}

/* `over`: the address of the parent's mapping that the new one replaces, or NULL. */
static struct coplace_page *map_new(void *over)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return NULL;
    /* Written, not only lengthened: on a full disk this fails here, where a store into a hole of the file
     * would kill the program. (So would the write, by SIGXFSZ, under a limit on file sizes.) */
    struct coplace_page *page = NULL;
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= sizeof empty &&
        pwrite(fd, &empty, sizeof empty, 0) == (ssize_t)sizeof empty)
        page = map(fd, over);
    close(fd);
    if (!page)
        unlink(path);
    return page;
}

static struct coplace_page *make(void *over)
{
    uint32_t target = 0, rigid = 0, generation = 0;
    uint64_t resizable = 0;
    pid_t pid = getpid();
    uint64_t start_time = own_start_time();
    read_default(&target, &rigid, &resizable);
    name_pid(pid);
    struct coplace_page *page = over ? NULL : map_own_earlier(pid, start_time);
    if (page) {
        __atomic_store_n(&page->magic, 0, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        /* The node's fields stay, and are not written: it may be storing into them now. */
        generation = page->generation + 1;
        memset((char *)page + sizeof page->magic, 0, offsetof(struct coplace_page, target) - sizeof page->magic);
        memset(page->lane, 0, sizeof page->lane);
    } else {
        if (over)
            unlink(path); /* a child's pid may have been used before */
        page = map_new(over);
        if (!page)
            return NULL;
        page->target = target;
        page->resizable = resizable;
    }
    page->version = COPLACE_PAGE_VERSION;
    page->bytes = COPLACE_PAGE_BYTES;
    page->pid = pid;
    page->generation = generation;
    page->start_time = start_time;
    page->state = COPLACE_STATE_LOADED | (team_spins_long() ? COPLACE_STATE_SPINS_LONG : 0) |
                  (own_mask ? COPLACE_STATE_SET_OWN_MASK : 0);
    page->rigid = rigid | (declared_rigid ? COPLACE_RIGID_DECLARED : 0);
    page->loads = loads;
    page->loaded_ns = clock_monotonic_ns();
    __atomic_store_n(&page->magic, COPLACE_PAGE_MAGIC, __ATOMIC_RELEASE);
    return page;
}

uint32_t page_loads(struct coplace_page *page, bool look)
{
    if (look) {
        uint32_t now = scope_loads();
        STORE(&loads, now);
        if (UNLIKELY(LOAD(&page->loads) != now))
            STORE(&page->loads, now);
    }
    return LOAD(&page->loads);
}

void page_rigid(struct coplace_page *page, uint32_t reason)
{
    if (UNLIKELY((LOAD(&page->rigid) & reason) != reason))
        __atomic_fetch_or(&page->rigid, reason, __ATOMIC_SEQ_CST);
}

void page_told(struct coplace_page *page, uint32_t threads)
{
    uint32_t seen = LOAD(&page->max_team);
    while (UNLIKELY(threads > seen))
        if (__atomic_compare_exchange_n(&page->max_team, &seen, threads, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
}

void page_runtime_runs(struct coplace_page *page, const struct runtime *rt)
{
    uint32_t state = COPLACE_STATE_RUNTIME_INITIALISED;
    page_told(page, (uint32_t)rt->omp_get_max_threads());
    if (LOAD(&page->procs) == 0)
        STORE(&page->procs, (uint32_t)rt->omp_get_num_procs());
    if (rt->omp_get_proc_bind && rt->omp_get_proc_bind() != 0) {
        state |= COPLACE_STATE_BINDS_THREADS;
        page_rigid(page, COPLACE_RIGID_BINDS_THREADS);
    }
    if (rt->omp_get_dynamic())
        state |= COPLACE_STATE_RUNTIME_DYNAMIC;
    __atomic_fetch_or(&page->state, state, __ATOMIC_RELEASE);
}

static void tell_runtime(struct coplace_page *page, const struct runtime *rt)
{
    STORE(&page->runtimes, runtime_count());
    if (rt->kind == RUNTIME_UNKNOWN) {
        page_rigid(page, COPLACE_RIGID_RUNTIME_UNKNOWN);
        return;
    }
    /* LLVM's has no way to end idle threads between regions that keeps the program's settings. */
    if (team_spins_long() && (rt->kind == RUNTIME_LLVM || !rt->omp_pause_resource_all))
        page_rigid(page, COPLACE_RIGID_SPINS_IN_DOCK);
    /* The runtime stands behind us in the loader's list, so its constructors have run before ours. Should
     * a loader do otherwise, it says "one processor" where there are several, and the node, which waits
     * for this with narrowing the mask, is told at the first region only. */
    if (rt->omp_get_num_procs() > 1 || cpus_allowed() <= 1)
        page_runtime_runs(page, rt);
}

static struct coplace_page *page_now(void)
{
    if (UNLIKELY(__atomic_exchange_n(&put_off, false, __ATOMIC_ACQ_REL)))
        STORE(&page_live, make(NULL));
    return page_get();
}

void page_sets_own_mask(void)
{
    own_mask = true;
    struct coplace_page *page = page_now();
    if (page)
        __atomic_fetch_or(&page->state, COPLACE_STATE_SET_OWN_MASK, __ATOMIC_SEQ_CST);
}

void page_runtime_found(const struct runtime *rt)
{
    struct coplace_page *page = page_now();
    if (page)
        tell_runtime(page, rt);
}

/* Threads of the parent do not exist here, so nobody else reads these variables. The new page replaces the
 * parent's at the same address: code that is in the middle of a region still holds that address. */
static void after_fork_in_child(void)
{
    int saved = errno;
    struct coplace_page *parents = page_live;
    page_epoch++;
    resolve_after_fork();
    team_after_fork();
    if (parents && runtime_count() == 0) {
        /* Most such children are a shell's and call exec at once: no file for them. */
        munmap(parents, sizeof *parents);
        page_live = NULL;
        put_off = true;
    } else if (parents) {
        struct coplace_page *page = make(parents);
        if (page) {
            for (const struct runtime *rt = runtime_latest(); rt; rt = rt->earlier)
                tell_runtime(page, rt);
        } else {
            mmap(parents, sizeof *parents, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
            page_live = NULL;
        }
    }
    errno = saved;
}

void page_find_directory(void)
{
    const char *dir = secure_getenv("COPLACE_PAGES");
    size_t len = dir ? strlen(dir) : 0;
    /* A relative path would mean another directory after the program's next chdir(). */
    if (dir_len != 0 || len == 0 || dir[0] != '/' || len + sizeof "/default" + 48 > sizeof path)
        return;
    memcpy(path, dir, len);
    path[len] = '/';
    dir_len = len + 1;
}

/* What pthread_atfork() is in glibc. musl has no such function (and LD_PRELOAD reaches its programs too, where
 * glibc is the system's library): there the library is inert. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void page_load(void)
{
    const char *rigid = secure_getenv("COPLACE_RIGID");
    page_find_directory();
    if (dir_len == 0 || !__register_atfork)
        return;
    declared_rigid = rigid && text_is(rigid, "1");
    mask_load();
    loads = scope_loads();
    struct coplace_page *page = make(NULL);
    if (!page || __register_atfork(NULL, NULL, after_fork_in_child, &__dso_handle) != 0)
        return;
    if (resolve_is_bypassed())
        page_rigid(page, COPLACE_RIGID_RUNTIME_UNKNOWN);
    STORE(&page_live, page);
    for (const struct runtime *rt = runtime_latest(); rt; rt = rt->earlier)
        tell_runtime(page, rt);
}

__attribute__((destructor)) static void page_exit(void)
{
    struct coplace_page *page = page_get();
    if (!page)
        return;
    __atomic_fetch_or(&page->state, COPLACE_STATE_EXITED, __ATOMIC_RELEASE);
    if (runtime_count() == 0 && page->pid == getpid() && !(page->rigid & COPLACE_RIGID_RUNTIME_UNKNOWN)) {
        name_pid(page->pid);
        unlink(path);
    }
}
