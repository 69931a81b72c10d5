/* What the library adds to a parallel region, in nanoseconds, without pages (inert) and with one, for a team
 * of one and of two. Prints JSON.
 *
 *   region_cost LIBRARY [PAIRS]
 *
 * In one process under the library, batches of regions that come through it alternate with batches that call
 * libgomp directly, so what else the machine does falls on both alike. `added_ns` is the median of the
 * differences of neighbouring batches, with an interval that holds the true median with at least 95%
 * certainty; `direct_ns` the median cost of a region without us. A team of one has no barrier, whose noise
 * hides the figure in a team of two. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PAIRS = 10001 };
typedef void region_start(void (*)(void *), void *, unsigned, unsigned);
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern int omp_get_max_threads(void);

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void empty(void *data) { (void)data; }

static double batch(region_start *start, int regions)
{
    double before = now_ns();
    for (int i = 0; i < regions; i++)
        start(empty, NULL, 0, 0);
    return (now_ns() - before) / regions;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In the child that runs under the library. */
static int measure(const char *name, int pairs, const char *end)
{
    static double added[MAX_PAIRS], direct[MAX_PAIRS];
    void *runtime = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
    region_start *ours = GOMP_parallel, *real = NULL;
    if (runtime)
        *(void **)&real = dlsym(runtime, "GOMP_parallel");
    if (!real || real == ours) {
        fprintf(stderr, "region_cost: the library is not in front of libgomp\n");
        return 1;
    }
    int regions = omp_get_max_threads() == 1 ? 1000 : 300;
    batch(ours, regions), batch(real, regions);
    for (int i = 0; i < pairs; i++) {
        /* Which of the two comes first alternates too. */
        double with = i & 1 ? batch(ours, regions) : 0;
        direct[i] = batch(real, regions);
        with = i & 1 ? with : batch(ours, regions);
        added[i] = with - direct[i];
    }
    qsort(added, (size_t)pairs, sizeof *added, ascending);
    qsort(direct, (size_t)pairs, sizeof *direct, ascending);
    /* Ranks of the interval for a median: n/2 -+ 0.98 sqrt(n), by the binomial distribution. */
    int off = 1;
    while ((double)off * off < 0.9604 * pairs)
        off++;
    int low = pairs / 2 - off < 0 ? 0 : pairs / 2 - off, high = pairs / 2 + off < pairs ? pairs / 2 + off : pairs - 1;
    printf("  \"%s\": {\"direct_ns\": %.1f, \"added_ns\": %.1f, \"low\": %.1f, \"high\": %.1f}%s\n", name,
           direct[pairs / 2], added[pairs / 2], added[low], added[high], end);
    return 0;
}

static int measure_in_child(const char *library, const char *dir, const char *pairs, int with_page, int team,
                            const char *end)
{
    pid_t pid = fork();
    if (pid == 0) {
        char number[16], name[64];
        snprintf(number, sizeof number, "%d", team);
        snprintf(name, sizeof name, "team_of_%d_%s", team, with_page ? "with_page" : "inert");
        setenv("OMP_NUM_THREADS", number, 1);
        setenv("LD_PRELOAD", library, 1);
        unsetenv("COPLACE_PAGES");
        if (with_page)
            setenv("COPLACE_PAGES", dir, 1);
        execl("/proc/self/exe", "region_cost", "--measure", name, pairs, end, (char *)NULL);
        _exit(127);
    }
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--measure"))
        return measure(argv[2], atoi(argv[3]), argv[4]);
    char library[4096], dir[] = "/tmp/coplace-bench-XXXXXX", command[64];
    const char *pairs = argc > 2 ? argv[2] : "301";
    if (argc < 2 || !realpath(argv[1], library) || atoi(pairs) < 15 || atoi(pairs) > MAX_PAIRS || !mkdtemp(dir)) {
        fprintf(stderr, "usage: region_cost LIBRARY [PAIRS, 15 to %d]\n", MAX_PAIRS);
        return 2;
    }
    int bad = 0;
    printf("{\n  \"unit\": \"ns a region\", \"pairs\": %s,\n", pairs);
    for (int team = 1; team <= 2; team++)
        for (int with_page = 0; with_page <= 1; with_page++) {
            fflush(stdout);
            bad |= measure_in_child(library, dir, pairs, with_page, team, team == 2 && with_page ? "" : ",");
        }
    printf("}\n");
    snprintf(command, sizeof command, "rm -rf %s", dir);
    bad |= system(command) != 0;
    return bad;
}
