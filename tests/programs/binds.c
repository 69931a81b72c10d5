/* Binds itself: `binds HOW GO SECONDS` runs parallel regions until the file GO is there, then two workers, the first
 * bound to the first CPU that the program could use at its start and the second to the last, which compute for so
 * many seconds. HOW: the workers are
 *   fork     processes that bind themselves by the C library's call
 *   raw      processes that bind themselves by the system call
 *   pthread  threads that bind themselves
 *   handle   threads that are bound by the first one
 *   attr     threads that are made with a mask
 * It fails unless each binding succeeds, and each worker has its CPU in the end, and no other; those of raw and attr
 * may have others: nobody sees that they chose what they had anyway. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../../include/coplace/resizable.h"

/* Its sum is not printed. */
COPLACE_RESIZABLE;

static cpu_set_t asked[2];
static double seconds;
static _Atomic int bound, bad;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int fails(const char *what)
{
    perror(what);
    atomic_store(&bad, 1);
    return 1;
}

static int work(int worker)
{
    for (double until = now() + seconds; now() < until;)
        for (volatile int step = 0; step < 100000; step++)
            ;
    cpu_set_t last;
    sched_getaffinity(0, sizeof last, &last);
    cpu_set_t both;
    CPU_AND(&both, &last, &asked[worker]);
    const char *how = getenv("BINDS_HOW");
    if (!CPU_EQUAL(strcmp(how, "attr") == 0 || strcmp(how, "raw") == 0 ? &both : &last, &asked[worker])) {
        fprintf(stderr, "worker %d has %d CPUs, and not the one that it asked for\n", worker, CPU_COUNT(&last));
        atomic_store(&bad, 1);
        return 1;
    }
    return 0;
}

static void *thread(void *number)
{
    int worker = number == (void *)1;
    if (strcmp(getenv("BINDS_HOW"), "pthread") == 0 &&
        pthread_setaffinity_np(pthread_self(), sizeof asked[0], &asked[worker]) != 0)
        fails("pthread_setaffinity_np");
    while (strcmp(getenv("BINDS_HOW"), "handle") == 0 && !atomic_load(&bound))
        usleep(1000);
    work(worker);
    return NULL;
}

static void process(int worker, int raw)
{
    long failed = raw ? syscall(SYS_sched_setaffinity, 0, sizeof asked[0], &asked[worker])
                      : sched_setaffinity(0, sizeof asked[0], &asked[worker]);
    _exit(failed != 0 ? fails("sched_setaffinity") : work(worker));
}

static void threads(const char *how)
{
    pthread_t both[2];
    for (int worker = 0; worker < 2; worker++) {
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        if (strcmp(how, "attr") == 0 && pthread_attr_setaffinity_np(&attr, sizeof asked[0], &asked[worker]) != 0)
            fails("pthread_attr_setaffinity_np");
        if (pthread_create(&both[worker], &attr, thread, (void *)(long)worker) != 0) {
            fails("pthread_create");
            exit(1);
        }
        if (strcmp(how, "handle") == 0 && pthread_setaffinity_np(both[worker], sizeof asked[0], &asked[worker]) != 0)
            fails("pthread_setaffinity_np");
    }
    atomic_store(&bound, 1);
    for (int worker = 0; worker < 2; worker++)
        pthread_join(both[worker], NULL);
}

int main(int argc, char **argv)
{
    cpu_set_t all;
    if (argc < 4 || sched_getaffinity(0, sizeof all, &all) != 0)
        return 2;
    const char *how = argv[1];
    setenv("BINDS_HOW", how, 1);
    seconds = atof(argv[3]);
    int first = -1, last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            first = first < 0 ? cpu : first;
            last = cpu;
        }
    CPU_SET(first, &asked[0]);
    CPU_SET(last, &asked[1]);
    double sum = 0;
    while (access(argv[2], F_OK) != 0) {
#pragma omp parallel for reduction(+ : sum)
        for (int i = 0; i < 200000; i++)
            sum += 1.0 / (i + 1);
    }
    if (strcmp(how, "fork") != 0 && strcmp(how, "raw") != 0) {
        threads(how);
        return bad || sum < 0;
    }
    for (int worker = 0; worker < 2; worker++)
        if (fork() == 0)
            process(worker, strcmp(how, "raw") == 0);
    for (int status; wait(&status) > 0;)
        bad |= status != 0;
    return bad || sum < 0;
}
