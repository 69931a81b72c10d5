/* Sixty small programs: ten constructs, resized in mid-run or not, on three runtimes. Each must compute what it
 * computes without the library. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 600
#define MOST 4
#define RESIZES 10 /* at least; on a busy machine it takes several answers to see as many */

static const char *const constructs[] = {"static-loop", "handed-out-loops", "ordered", "sections", "steps", "tasks",
                                         "taskloop-depend", "nested", "teams", "cancel-set-threads"};
static const struct {
    const char *name, *program, *prefix;
} runtimes[] = {{"libgomp", "ten_gnu", ""}, {"libomp", "ten_llvm", ""}, {"wheel's", "host", "ten 0 "}};

/* The libgomp that a wheel really brings, where wheels are; else the system's, renamed as they rename theirs. */
static const char *wheels_plugin(void)
{
    char path[8300];
    snprintf(path, sizeof path, "%s/plugin_w.so", build_dir);
    return access(path, R_OK) == 0 ? "plugin_w.so" : "plugin_p.so";
}

static void run_cell(unsigned construct, unsigned runtime, bool resized, char *digest, uint64_t *resizes)
{
    char question[128];
    struct program p = START(runtimes[runtime].program, "OMP_CANCELLATION=true");
    CHECK(p.page);
    if (*runtimes[runtime].prefix)
        CHECK(!strcmp(ask(&p, "open 0 %s/%s", build_dir, wheels_plugin()), "ok"));
    snprintf(question, sizeof question, "%s%s %d\n", runtimes[runtime].prefix, constructs[construct], ROUNDS);
    const uint64_t until = monotonic_ns() + PATIENCE_NS;
    for (int answers = 0;
         answers == 0 || (resized && p.page->lane[0].resizes <= RESIZES && monotonic_ns() < until); answers++) {
        const char *answer = resized ? text_under_flicker(&p, question, MOST) : (say(&p, question), listen_to(&p));
        CHECK(answers == 0 || !strcmp(digest, answer), "%s, then %s", digest, answer);
        snprintf(digest, 64, "%s", answer);
    }
    CHECK(p.page->rigid == 0, "rigid %u", p.page->rigid);
    *resizes = p.page->lane[0].resizes;
    CHECK(resized ? *resizes > RESIZES : *resizes == 0, "%lu resizes", (unsigned long)*resizes);
    CHECK(!coplace_page_in_region(p.page) && p.page->nested == 0, "nested %u, lanes %lx %lx", p.page->nested,
          (unsigned long)p.page->lane[0].now, (unsigned long)p.page->lane[1].now);
    CHECK(finish(&p) == 0);
}

static void sixty_programs_compute_the_same_resized_or_not_on_every_runtime(void)
{
    char path[8300];
    snprintf(path, sizeof path, "%s/ten_llvm", build_dir);
    bool llvm = access(path, X_OK) == 0;
    printf("# the wheel's: %s\n", strcmp(wheels_plugin(), "plugin_w.so") ? "the system's libgomp, renamed" : "scikit-learn's");
    printf("# %-20s %-8s %-18s %-18s %s\n", "construct", "runtime", "as it is", "resized", "resizes");
    for (unsigned c = 0; c < sizeof constructs / sizeof *constructs; c++) {
        struct program alone = START("ten_gnu", "LD_PRELOAD", "OMP_CANCELLATION=true");
        char expected[64], digest[2][64];
        snprintf(expected, sizeof expected, "%s", ask(&alone, "%s %d", constructs[c], ROUNDS));
        CHECK(finish(&alone) == 0 && strlen(expected) == 16 && strcmp(expected, "0000000000000000"));
        for (unsigned r = 0; r < sizeof runtimes / sizeof *runtimes; r++) {
            uint64_t resizes = 0;
            if (r == 1 && !llvm)
                continue;
            for (int resized = 0; resized < 2 && !failed; resized++)
                run_cell(c, r, resized, digest[resized], &resizes);
            if (failed) {
                printf("# %s on %s\n", constructs[c], runtimes[r].name);
                return;
            }
            printf("# %-20s %-8s %-18s %-18s %lu\n", constructs[c], runtimes[r].name, digest[0], digest[1],
                   (unsigned long)resizes);
            CHECK(!strcmp(digest[0], expected) && !strcmp(digest[1], expected), "%s on %s: without coplace %s",
                  constructs[c], runtimes[r].name, expected);
        }
    }
    if (!llvm)
        printf("SKIPPED IN PART twenty of sixty OpenMP programs: there is no clang with OpenMP (apt-get install clang libomp-dev)\n");
}

const struct test table_tests[] = {
    TEST(sixty_programs_compute_the_same_resized_or_not_on_every_runtime),
    {NULL, NULL},
};
