#define _GNU_SOURCE
#include "steer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char build_dir[4096], pages_dir[4096], failed_text[512];
const char *failed;
const char *skipped;

#define ANSWER_MS 300000

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char more[256];
    va_list list;
    va_start(list, format);
    vsnprintf(more, sizeof more, format, list);
    va_end(list);
    snprintf(failed_text, sizeof failed_text, "%s:%d: %s %s", file, line, condition, more);
    failed = failed_text;
}

void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static void set_environment(const char *const *settings)
{
    char preload[8300];
    snprintf(preload, sizeof preload, "%s/libcoplace_preload.so", build_dir);
    unsetenv("COPLACE_RIGID");
    unsetenv("COPLACE_TOLERANT");
    unsetenv("COPLACE_INHERIT");
    unsetenv("GOMP_SPINCOUNT");
    unsetenv("OMP_DYNAMIC");
    setenv("LD_PRELOAD", preload, 1);
    setenv("COPLACE_PAGES", pages_dir, 1);
    setenv("OMP_NUM_THREADS", "4", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    for (; settings && *settings; settings++) {
        if (strchr(*settings, '='))
            putenv((char *)(uintptr_t)*settings);
        else
            unsetenv(*settings);
    }
}

/* Programs that are running; a test that fails leaves some behind. */
static pid_t running[64];

static void note(pid_t gone, pid_t come)
{
    for (unsigned i = 0; i < sizeof running / sizeof *running; i++)
        if (running[i] == gone) {
            running[i] = come;
            return;
        }
}

void end_all_programs(void)
{
    for (unsigned i = 0; i < sizeof running / sizeof *running; i++)
        if (running[i]) {
            kill(running[i], SIGKILL);
            waitpid(running[i], NULL, 0);
            running[i] = 0;
        }
}

struct program start(const char *name, const char *const *settings)
{
    /* Programs for another processor. Linked statically, so that LD_PRELOAD is the program's alone. */
    const char *emulator = getenv("EMULATOR");
    struct program program = {0};
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        exit(2);
    program.pid = fork();
    if (program.pid == 0) {
        char path[8300], *argument;
        dup2(to[0], 0);
        dup2(from[1], 1);
        snprintf(path, sizeof path, "%s%s%s", *name == '/' ? "" : build_dir, *name == '/' ? "" : "/", name);
        if ((argument = strchr(path, ' ')))
            *argument++ = '\0';
        set_environment(settings);
        if (emulator)
            execl(emulator, emulator, "-L", getenv("SYSROOT"), path, argument, (char *)NULL);
        else
            execl(path, path, argument, (char *)NULL);
        _exit(127);
    }
    note(0, program.pid);
    close(to[0]);
    close(from[1]);
    program.in = to[1];
    program.out = from[0];
    bool inert = false;
    for (const char *const *s = settings; s && *s; s++)
        inert |= !strncmp(*s, "COPLACE_PAGES", 13) || !strcmp(*s, "LD_PRELOAD");
    program.page = inert ? NULL : page_of(program.pid, 60000);
    return program;
}

const char *listen_to(struct program *program)
{
    static char line[4096];
    size_t n = 0;
    while (n < sizeof line - 1) {
        struct pollfd ready = {program->out, POLLIN, 0};
        if (poll(&ready, 1, ANSWER_MS) <= 0 || read(program->out, line + n, 1) != 1)
            break;
        if (line[n] == '\n')
            break;
        n++;
    }
    line[n] = '\0';
    return line;
}

void say(struct program *program, const char *line)
{
    if (write(program->in, line, strlen(line)) < 0)
        fprintf(stderr, "# cannot write to program %d\n", (int)program->pid);
}

static const char *ask_list(struct program *program, const char *format, va_list list)
{
    char line[4096];
    size_t n = (size_t)vsnprintf(line, sizeof line - 1, format, list);
    line[n] = '\n', line[n + 1] = '\0';
    say(program, line);
    return listen_to(program);
}

const char *ask(struct program *program, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *answer = ask_list(program, format, list);
    va_end(list);
    return answer;
}

long ask_number(struct program *program, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *answer = ask_list(program, format, list);
    va_end(list);
    char *end;
    long n = strtol(answer, &end, 10);
    return *answer && !*end ? n : -1000000;
}

int finish(struct program *program)
{
    int status = 0;
    close(program->in);
    for (int waited = 0; waitpid(program->pid, &status, WNOHANG) == 0; waited += 5) {
        if (waited > 60000)
            kill(program->pid, SIGKILL);
        sleep_ms(5);
    }
    note(program->pid, 0);
    close(program->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct coplace_page *page_of(pid_t pid, int wait_ms)
{
    char path[8300];
    snprintf(path, sizeof path, "%s/%d", pages_dir, (int)pid);
    for (int waited = 0; waited <= wait_ms; waited++, sleep_ms(1)) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        struct coplace_page *page = MAP_FAILED;
        if (lseek(fd, 0, SEEK_END) == COPLACE_PAGE_BYTES)
            page = mmap(NULL, COPLACE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (page == MAP_FAILED)
            continue;
        while (__atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != COPLACE_PAGE_MAGIC && waited++ <= wait_ms)
            sleep_ms(1);
        return page;
    }
    return NULL;
}

void set_resizable(struct coplace_page *page, uint64_t word)
{
    __atomic_store_n(&page->resizable, word, __ATOMIC_SEQ_CST);
}

uint64_t resizable_now(const struct coplace_page *page)
{
    return (uint64_t)(page->generation + 1) << 32 | page->loads;
}

void set_target(struct coplace_page *page, uint32_t target)
{
    uint64_t word = (uint64_t)(page->target_seq + 1) << 32 | target;
    if (page->resizable == 0)
        set_resizable(page, COPLACE_RESIZABLE_BY_WORD);
    __atomic_store_n((uint64_t *)(void *)&page->target, word, __ATOMIC_SEQ_CST);
}

void write_default(uint32_t target, uint32_t rigid)
{
    static struct coplace_page page;
    char path[8300];
    page.magic = COPLACE_PAGE_MAGIC, page.version = COPLACE_PAGE_VERSION;
    page.target = target, page.rigid = rigid, page.resizable = COPLACE_RESIZABLE_BY_WORD;
    snprintf(path, sizeof path, "%s/default", pages_dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &page, sizeof page) != (ssize_t)sizeof page)
        exit(2);
    close(fd);
}

int files_in_pages_dir(void)
{
    int n = 0;
    DIR *dir = opendir(pages_dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

uint64_t regions_entered(const struct coplace_page *page) { return page->lane[0].regions + page->lane[1].regions; }

uint64_t regions_of_size(const struct coplace_page *page, unsigned size)
{
    return page->lane[0].size[size - 1].regions + page->lane[1].size[size - 1].regions;
}

int run(const char *command, char *out, size_t out_size, char *err, size_t err_size)
{
    char files[2][4200];
    char *texts[2] = {out, err};
    size_t sizes[2] = {out_size, err_size};
    for (int i = 0; i < 2; i++)
        snprintf(files[i], sizeof files[i], "%s/.run%d", pages_dir, i);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++)
            dup2(open(files[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), 1 + i);
        set_environment(NULL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    for (int i = 0; i < 2; i++) {
        int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, texts[i], sizes[i] - 1);
        texts[i][n > 0 ? n : 0] = '\0';
        close(fd);
        unlink(files[i]);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint32_t seed = 12345;
static uint32_t next_random(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 16;
}

const char *text_under_flicker(struct program *p, const char *question, uint32_t most)
{
    say(p, question);
    int fd = p->out;
    prctl(PR_SET_TIMERSLACK, 1); /* or the kernel makes 70 of the 20 */
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(fd, &ready);
        struct timeval wait = {0, 20};
        if (select(fd + 1, &ready, NULL, NULL, &wait) > 0)
            return listen_to(p);
        uint32_t dice = next_random() % 64;
        set_target(p->page, dice < 31 ? 1 : dice < 62 ? most : 1 + next_random() % most);
    }
}

long ask_under_flicker(struct program *p, const char *question, uint32_t most)
{
    return strtol(text_under_flicker(p, question, most), NULL, 10);
}
