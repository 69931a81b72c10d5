// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Programs that do what programs do, and a scheduler would rather they did not:
//   misbehave crash | fork | daemonise FILE | affinity | threads
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *spin(void *milliseconds)
{
    for (double until = now() + 1e-3 * (double)(long)milliseconds; now() < until;)
        ;
    return NULL;
}

static void crash(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, spin, (void *)5000);
    spin((void *)300);
    *(volatile int *)NULL = 1;
}

static int forks(void)
{
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            if (fork() == 0) {
                spin((void *)300);
                _exit(0);
            }
            int status;
            wait(&status);
            _exit(status != 0);
        }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad |= status;
    return bad;
}

static void daemonise(const char *path)
{
    if (fork() != 0) {
        puts("VERIFIED");
        fflush(stdout);
        _exit(0);
    }
    setsid();
    if (fork() != 0)
        _exit(0);
    spin((void *)700);
    FILE *file = fopen(path, "w");
    if (file) {
        fputs("done\n", file);
        fclose(file);
    }
    _exit(0);
}

static void affinity(void)
{
    for (int i = 0; i < 20; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(i % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
        // Whether it is allowed is the scheduler's business; that it is tried is the point.
        sched_setaffinity(0, sizeof set, &set);
        spin((void *)30);
    }
}

static void *nap(void *unused)
{
    struct timespec t = {.tv_nsec = 400000000};
    nanosleep(&t, NULL);
    return unused;
}

static int threads(void)
{
    static pthread_t all[1000];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < 1000; i++)
        // Every tenth one wants a CPU.
        if (pthread_create(&all[i], &attributes, i % 10 ? nap : spin, (void *)2))
            return 1;
    for (int i = 0; i < 1000; i++)
        pthread_join(all[i], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int bad = 0;
    if (!strcmp(what, "crash"))
        crash();
    else if (!strcmp(what, "fork"))
        bad = forks();
    else if (!strcmp(what, "daemonise") && argc > 2)
        daemonise(argv[2]);
    else if (!strcmp(what, "affinity"))
        affinity();
    else if (!strcmp(what, "threads"))
        bad = threads();
    else
        return 2;
    puts(bad ? "FAILED: a child or a thread" : "VERIFIED");
    return bad;
}
