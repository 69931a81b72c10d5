/* The library itself, built with sanitizers: resized all the while, forked, by several masters. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <string.h>

static char preload[8400], log_path[4200];

/* Sanitizers write to log_path.<pid>; none is left after a clean run. */
static long reports(bool shown)
{
    char command[12900], text[64] = "";
    snprintf(command, sizeof command, "%s%s.* >&2 2>/dev/null; ls %s.* 2>/dev/null | wc -l",
             shown ? "cat " : ": ", log_path, log_path);
    FILE *f = popen(command, "r");
    if (!f || !fgets(text, sizeof text, f))
        return -1;
    pclose(f);
    long n = -1;
    sscanf(text, "%ld", &n);
    return n;
}

static void work(struct program *p)
{
    CHECK(p->page);
    CHECK(ask_number(p, "fork") > 0 && ask_number(p, "go") >= 1 && ask_number(p, "end") == 0);
    CHECK(ask_number(p, "team") == 4);
    const uint64_t until = monotonic_ns() + PATIENCE_NS;
    while (p->page->lane[0].resizes <= 20 && monotonic_ns() < until)
        CHECK(ask_under_flicker(p, "constructs 20\n", 4) == 0);
    CHECK(ask_under_flicker(p, "masters 3 500\n", 4) == 0);
    CHECK(ask_number(p, "explicit 3") == 3 && ask_number(p, "dynamic 0") == 0);
    CHECK(p->page->lane[0].resizes > 20);
    CHECK(finish(p) == 0);
}

static void prepare(const char *kind)
{
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s/libcoplace_preload_%s.so", build_dir, kind);
    snprintf(log_path, sizeof log_path, "%s/.%s", pages_dir, kind);
}

static void the_library_built_with_address_sanitizer_finds_nothing_wrong(void)
{
    char options[8400];
    prepare("asan");
    snprintf(options, sizeof options, "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:log_path=%s", log_path);
    struct program p = start("app_asan", (const char *const[]){preload, options, NULL});
    p.page = page_of(p.pid, 60000);
    work(&p);
    CHECK(failed || reports(true) == 0);
}

static struct program start_under_thread_sanitizer(const char *kind)
{
    static char options[8400];
    prepare(kind);
    snprintf(options, sizeof options, "TSAN_OPTIONS=ignore_noninstrumented_modules=1:die_after_fork=0:log_path=%s", log_path);
    struct program p = start("app_tsan", (const char *const[]){preload, options, NULL});
    p.page = page_of(p.pid, 60000);
    return p;
}

static void the_library_built_with_thread_sanitizer_finds_no_race(void)
{
    struct program p = start_under_thread_sanitizer("tsan");
    work(&p);
    CHECK(failed || reports(true) == 0);
}

static void a_race_that_is_planted_in_it_is_found(void)
{
    struct program p = start_under_thread_sanitizer("race");
    CHECK(p.page && ask_under_flicker(&p, "masters 3 500\n", 4) == 0);
    CHECK(finish(&p) == 66, "what the sanitizer ends programs with that had a race");
    CHECK(reports(false) == 1);
}

const struct test sanitizer_tests[] = {
    TEST(the_library_built_with_address_sanitizer_finds_nothing_wrong),
    TEST(the_library_built_with_thread_sanitizer_finds_no_race),
    TEST(a_race_that_is_planted_in_it_is_found),
    {NULL, NULL},
};
