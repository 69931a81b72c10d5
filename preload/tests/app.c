/* An OpenMP program that does what it is told on stdin, one command a line, and answers with one line each.
 * The tests steer it; what it computes it checks by itself. */
#define _GNU_SOURCE
#include <omp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "constructs.h"

extern void GOMP_parallel_start(void (*)(void *), void *, unsigned);
extern void GOMP_parallel_end(void);
extern int omp_get_max_threads_(void);
extern int omp_get_dynamic_(void);
extern void omp_set_num_threads_(const int *);
extern void omp_set_dynamic_(const int *);
extern void omp_set_dynamic_8_(const long *);

static int team(void)
{
    int n = 0;
#pragma omp parallel
#pragma omp single
    n = omp_get_num_threads();
    return n;
}

static void started(void *data)
{
    if (omp_get_thread_num() == 0)
        *(int *)data = omp_get_num_threads();
}

static int team_by_halves(void)
{
    int n = 0;
    GOMP_parallel_start(started, &n, 0);
    started(&n);
    GOMP_parallel_end();
    return n;
}

static int kernel_threads(void)
{
    char line[256];
    int n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "Threads: %d", &n);
    if (f)
        fclose(f);
    return n;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_told(void)
{
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    return poll(&in, 1, 0) != 0;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static __thread int born;

/* Threads that were made while regions ran for so long; for 0 until there is something on stdin. */
static int births_in(int ms)
{
    int births = 0;
    for (double end = now_s() + ms * 1e-3; ms ? now_s() < end : !is_told();) {
#pragma omp parallel
        if (!born) {
            born = 1;
#pragma omp atomic
            births++;
        }
    }
    return births;
}

static pthread_barrier_t together;

static void *be_master(void *rounds)
{
    long bad = 0;
    pthread_barrier_wait(&together);
    for (long i = 0; i < (long)rounds; i++) {
        long sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (long k = 0; k < 1000; k++)
            sum += k;
        bad += sum != 499500;
    }
    return (void *)bad;
}

static long masters(int count, long rounds)
{
    pthread_t threads[16];
    long bad = 0;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, be_master, (void *)rounds);
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        bad += (long)result;
    }
    return bad;
}

static int seen_at_once(const int *max)
{
    int seen;
#pragma omp critical
    seen = *max;
    return seen;
}

/* Sizes of a region and of the regions in it, and the greatest number of threads that ran at once. */
static void nested(int *outer, int *inner, int *most)
{
    int running = 0, out = 0, in = 0, max = 0;
#pragma omp parallel
    {
#pragma omp single
        out = omp_get_num_threads();
#pragma omp parallel
        {
            int n;
#pragma omp atomic capture
            n = ++running;
#pragma omp critical
            {
                max = n > max ? n : max;
                in = omp_get_num_threads() > in ? omp_get_num_threads() : in;
            }
            usleep(30000); /* for more than there may be to show */
            for (double until = now_s() + 60; seen_at_once(&max) < out && now_s() < until;)
                usleep(1000);
#pragma omp atomic
            running--;
        }
    }
    *outer = out, *inner = in, *most = max;
}

static void fork_and_answer(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        /* The child waits for a word, so that the test can look at both pages, then uses OpenMP. */
        printf("%d\n", (int)getpid());
        fflush(stdout);
        char line[64];
        if (!fgets(line, sizeof line, stdin))
            _exit(4);
        printf("%d\n", team());
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            _exit(4);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(int argc, char **argv)
{
    char line[128];
    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        char word[32] = "";
        long a = 0, b = 0;
        sscanf(line, "%31s %ld %ld", word, &a, &b);
        if (!strcmp(word, "team")) {
            printf("%d\n", team());
        } else if (!strcmp(word, "halves")) {
            printf("%d\n", team_by_halves());
        } else if (!strcmp(word, "explicit")) {
            int n = 0;
#pragma omp parallel num_threads(a)
#pragma omp single
            n = omp_get_num_threads();
            printf("%d\n", n);
        } else if (!strcmp(word, "if")) {
            int n = 0;
#pragma omp parallel if (a)
#pragma omp single
            n = omp_get_num_threads();
            printf("%d\n", n);
        } else if (!strcmp(word, "max")) {
            printf("%d\n", omp_get_max_threads());
        } else if (!strcmp(word, "procs")) {
            printf("%d\n", omp_get_num_procs());
        } else if (!strcmp(word, "dynamic?")) {
            printf("%d\n", omp_get_dynamic());
        } else if (!strcmp(word, "dynamic")) {
            omp_set_dynamic((int)a);
            printf("%d\n", omp_get_dynamic());
        } else if (!strcmp(word, "threads=")) {
            omp_set_num_threads((int)a);
            printf("%d\n", omp_get_max_threads());
        } else if (!strcmp(word, "fortran")) {
            int four = (int)a;
            omp_set_num_threads_(&four);
            printf("%d %d\n", omp_get_max_threads_(), omp_get_dynamic_());
        } else if (!strcmp(word, "fortran-dynamic")) {
            int four = (int)a;
            long eight = b;
            if (b < 0)
                omp_set_dynamic_(&four);
            else
                omp_set_dynamic_8_(&eight);
            printf("%d\n", omp_get_dynamic_());
        } else if (!strcmp(word, "levels")) {
            omp_set_max_active_levels((int)a);
            printf("%d\n", omp_get_max_active_levels());
        } else if (!strcmp(word, "nested")) {
            int outer, inner, most;
            nested(&outer, &inner, &most);
            printf("%d %d %d\n", outer, inner, most);
        } else if (!strcmp(word, "constructs")) {
            printf("%ld\n", check_constructs(a));
        } else if (!strcmp(word, "births")) {
            printf("%d\n", births_in((int)a));
        } else if (!strcmp(word, "masters")) {
            printf("%ld\n", masters((int)a, b));
        } else if (!strcmp(word, "kernel-threads")) {
            printf("%d\n", kernel_threads());
        } else if (!strcmp(word, "cpu-while-asleep")) { /* CPU time in ms while the program sleeps `a` ms */
            double before = cpu_s();
            usleep((useconds_t)a * 1000);
            printf("%d\n", (int)((cpu_s() - before) * 1e3));
        } else if (!strcmp(word, "fork")) {
            fork_and_answer();
        } else if (!strcmp(word, "exec")) {
            execv("/proc/self/exe", argv);
        } else {
            printf("?\n");
        }
        fflush(stdout);
    }
    return 0;
}
