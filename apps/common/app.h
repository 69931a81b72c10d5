// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What all programs of this folder share: options, classes of size, counting of regions, timing,
// and the way a result is reported. Everything is static: a program is one translation unit.
//
// The contract of every program:
//   - the amount of work is fixed by the options and never by a clock, so that a slowdown is a
//     ratio of times (`burn` is the one exception, it is told a time and reports work);
//   - work grows linearly with the iterations;
//   - the result does not depend on the number of threads, which may change between any two
//     regions: sums of floating point numbers are taken over blocks of fixed length and the
//     blocks are added in order, so that even the last bit is the same;
//   - last line on stdout `VERIFIED` and exit 0, or `FAILED: why` and exit 1; wrong usage exits 2.
#ifndef COPLACE_APP_H
#define COPLACE_APP_H

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { APP_BLOCK = 512, APP_CLASSES = 5, APP_CACHE_LINE = 64 };

static const double app_pi = 3.14159265358979323846;

struct app_class {
    char letter;
    long n;          // problem size, its meaning is the program's
    long iterations; // outer iterations, run time is linear in them
};

struct app_spec {
    const char *name;
    const char *what;    // one line for --help
    const char *n_means; // what a number given to --size counts
    long n_min, n_max;
    bool n_power_of_two;
    bool takes_threads; // --threads N
    bool takes_seconds; // --seconds F instead of --iterations and --scale
    struct app_class classes[APP_CLASSES];
};

static struct {
    const struct app_spec *spec;
    char size[24];
    long n, iterations;
    int threads;    // of --threads, 0 when not given
    double seconds; // of --seconds, 0 when not given
    bool json, corrupt, no_dynamic, corrupted;
    size_t working_set_bytes;
    uint64_t regions, team_changes;
    int threads_min, threads_max, threads_last;
    double begun, started, stopped;
    char why[160]; // the first failure, empty when there is none
} app;

static inline double app_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void app_usage_error(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s: ", app.spec->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (see %s --help)\n", app.spec->name);
    exit(2);
}

static inline void app_help(void)
{
    const struct app_spec *s = app.spec;
    printf("%s: %s\n\n", s->name, s->what);
    printf("  --size C         class T, S, M, L or X, or a number: %s,\n", s->n_means);
    printf("                   %ld to %ld%s (default S; a number takes the iterations of S)\n", s->n_min, s->n_max,
           s->n_power_of_two ? ", a power of two" : "");
    if (s->takes_seconds) {
        printf("  --seconds F      how long to burn (default: by class)\n");
    } else {
        printf("  --iterations N   outer iterations; the run time is linear in them\n");
        printf("  --scale F        multiplies the iterations\n");
    }
    if (s->takes_threads)
        printf("  --threads N      width of the program\n");
    printf("  --json           one line of JSON before the verdict\n");
    printf("\nclass          n  iterations\n");
    for (int i = 0; i < APP_CLASSES; i++)
        printf("%5c %10ld %11ld\n", s->classes[i].letter, s->classes[i].n, s->classes[i].iterations);
    printf("\nLast line: VERIFIED and exit 0, or FAILED: why and exit 1. Wrong usage exits 2.\n");
    exit(0);
}

static inline long app_long(const char *option, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        app_usage_error("%s wants a whole number from %ld to %ld, not '%s'", option, low, high, text);
    return value;
}

static inline double app_double(const char *option, const char *text, double low, double high)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value >= low && value <= high))
        app_usage_error("%s wants a number from %g to %g, not '%s'", option, low, high, text);
    return value;
}

static inline void app_take_size(const char *text)
{
    const struct app_spec *s = app.spec;
    snprintf(app.size, sizeof app.size, "%s", text);
    for (int i = 0; i < APP_CLASSES; i++)
        if (text[0] == s->classes[i].letter && !text[1]) {
            app.n = s->classes[i].n;
            app.iterations = s->classes[i].iterations;
            return;
        }
    if (text[0] < '0' || text[0] > '9')
        app_usage_error("--size wants T, S, M, L, X or a number, not '%s'", text);
    app.n = app_long("--size", text, s->n_min, s->n_max);
    if (s->n_power_of_two && (app.n & (app.n - 1)))
        app_usage_error("--size wants a power of two, not '%s'", text);
    app.iterations = s->classes[1].iterations;
}

static inline void app_begin(const struct app_spec *spec, int argc, char **argv)
{
    app.begun = app_now();
    app.spec = spec;
    app_take_size("S");
    long iterations = 0;
    double scale = 1;
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i];
        if (!strcmp(o, "--json")) {
            app.json = true;
        } else if (!strcmp(o, "--break")) {
            app.corrupt = true; // not in --help: proves in the tests that the verification can fail
        } else if (!strcmp(o, "--no-dynamic") && spec->takes_threads) {
            app.no_dynamic = true;
        } else if (!strcmp(o, "--help") || !strcmp(o, "-h")) {
            app_help();
        } else if (!strcmp(o, "--size") || (spec->takes_seconds && !strcmp(o, "--seconds")) ||
                   (!spec->takes_seconds && (!strcmp(o, "--iterations") || !strcmp(o, "--scale"))) ||
                   (spec->takes_threads && !strcmp(o, "--threads"))) {
            if (++i == argc)
                app_usage_error("%s wants a value", o);
            if (!strcmp(o, "--size"))
                app_take_size(argv[i]);
            else if (!strcmp(o, "--iterations"))
                iterations = app_long(o, argv[i], 1, 2000000000L);
            else if (!strcmp(o, "--scale"))
                scale = app_double(o, argv[i], 1e-6, 1e6);
            else if (!strcmp(o, "--seconds"))
                app.seconds = app_double(o, argv[i], 0.001, 1e6);
            else
                app.threads = (int)app_long(o, argv[i], 1, 4096);
        } else {
            app_usage_error("unknown option '%s'", o);
        }
    }
    if (iterations)
        app.iterations = iterations;
    app.iterations = lrint((double)app.iterations * scale);
    if (app.iterations < 1)
        app.iterations = 1;
}

// Notes the first failure; the program goes on to its end, so that a wrong value never hangs it.
__attribute__((format(printf, 2, 3))) static inline bool app_check(bool holds, const char *format, ...)
{
    if (!holds && !app.why[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(app.why, sizeof app.why, format, args);
        va_end(args);
    }
    return holds;
}

// Memory that is not part of the working set: what only set-up or verification touches.
static inline void *app_alloc_aside(size_t count, size_t size)
{
    void *p = NULL;
    if (count > SIZE_MAX / 2 / size || posix_memalign(&p, APP_CACHE_LINE, count * size + 1)) {
        printf("FAILED: no memory for %zu elements of %zu bytes, choose a smaller --size\n", count, size);
        exit(1);
    }
    return p;
}

// Memory of the working set. Not touched here: the first touch belongs to the threads that use it.
static inline void *app_alloc(size_t count, size_t size)
{
    app.working_set_bytes += count * size;
    return app_alloc_aside(count, size);
}

static inline void app_start(void) { app.started = app_now(); }
static inline void app_stop(void) { app.stopped = app_now(); }

// Counted by the first thread alone, so no atomics. Inside every parallel region, once.
static inline void app_count_team(int threads)
{
    app.regions++;
    if (threads != app.threads_last && app.threads_last)
        app.team_changes++;
    app.threads_last = threads;
    if (threads > app.threads_max)
        app.threads_max = threads;
    if (threads < app.threads_min || !app.threads_min)
        app.threads_min = threads;
}

#ifdef _OPENMP
static inline void app_region(void)
{
    if (omp_get_thread_num() == 0)
        app_count_team(omp_get_num_threads());
}
#endif

// True once, in the middle of the run, and only under --break.
static inline bool app_corrupt_now(long iteration)
{
    if (!app.corrupt || app.corrupted || iteration < app.iterations / 2)
        return false;
    return app.corrupted = true;
}

// The generator of all programs: a bijection of 64 bits that needs no state, so that any thread
// can make any element (the finaliser of splitmix64: Steele, Lea, Flood, OOPSLA 2014).
static inline uint64_t app_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline double app_uniform(uint64_t x) { return (double)(app_mix(x) >> 11) * 0x1p-53; }

static inline long app_blocks(long n) { return (n + APP_BLOCK - 1) / APP_BLOCK; }
static inline long app_block_end(long block, long n) { return (block + 1) * APP_BLOCK < n ? (block + 1) * APP_BLOCK : n; }

// The larger of two errors, where a NaN is the largest and stays.
static inline double app_worst(double a, double b) { return a != a || b <= a ? a : b; }

static inline double app_sum(const double *partial, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++)
        sum += partial[i];
    return sum;
}

// The report. `result` is the same text for every number of threads.
__attribute__((format(printf, 1, 2))) static inline int app_finish(const char *format, ...)
{
    char result[128];
    va_list args;
    va_start(args, format);
    vsnprintf(result, sizeof result, format, args);
    va_end(args);
    const double seconds = app.stopped - app.started, total = app_now() - app.begun;
    const bool verified = !app.why[0];
    if (app.json) {
        printf("{\"app\":\"%s\",\"size\":\"%s\",\"n\":%ld,\"iterations\":%ld,\"seconds\":%.6f,\"total_seconds\":%.6f,"
               "\"regions\":%llu,\"threads_max\":%d,\"threads_min\":%d,\"team_changes\":%llu,"
               "\"working_set_bytes\":%zu,\"result\":\"%s\",\"verified\":%s}\n",
               app.spec->name, app.size, app.n, app.iterations, seconds, total, (unsigned long long)app.regions,
               app.threads_max, app.threads_min, (unsigned long long)app.team_changes, app.working_set_bytes, result,
               verified ? "true" : "false");
    } else {
        printf("%s: size %s, n %ld, %ld iterations, working set %.1f MiB\n", app.spec->name, app.size, app.n,
               app.iterations, (double)app.working_set_bytes / 1048576);
        printf("%s: %.3f s, %llu regions of %d to %d threads, result %s\n", app.spec->name, seconds,
               (unsigned long long)app.regions, app.threads_min, app.threads_max, result);
    }
    if (verified)
        printf("VERIFIED\n");
    else
        printf("FAILED: %s\n", app.why);
    if (fflush(stdout)) {
        fprintf(stderr, "%s: cannot write the result: %s\n", app.spec->name, strerror(errno));
        return 1;
    }
    return verified ? 0 : 1;
}

#endif
