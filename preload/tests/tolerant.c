/* Code that may get fewer threads than it asks for. Every entry of tolerant.def is tried. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *what, *tested;
} listed[] = {
#define TOLERATES(pattern, what, tested) {what, tested},
#include "tolerant.def"
#undef TOLERATES
};

/* What the script prints, line by line, while the target stays, or changes all the time (0 = that). */
static void use(const char *command, uint32_t target, char *text, size_t size)
{
    struct program p = start(command, (const char *const[]){"OPENBLAS_NUM_THREADS=1", NULL});
    *text = '\0';
    CHECK(p.page);
    if (target)
        set_target(p.page, target);
    for (;;) {
        const char *line = target ? listen_to(&p) : text_under_flicker(&p, "", 4);
        if (!*line)
            break;
        size_t n = strlen(text);
        snprintf(text + n, size - n, "%s\n", line);
    }
    CHECK(finish(&p) == 0, "%s", command);
    CHECK(p.page->rigid == 0, "rigid %u: a region that is not on the list", p.page->rigid);
    CHECK(p.page->max_team >= 4 && p.page->lane[0].regions > 100, "max_team %u", p.page->max_team);
    CHECK(target == 4 ? p.page->lane[0].shrunk == 0 : p.page->lane[0].shrunk > 100);
}

static void what_is_listed_computes_the_same_with_fewer_threads_than_it_asks_for(void)
{
    const char *python = getenv("WHEELS_PYTHON");
    char command[8300], full[4096], got[4096];
    if (!python || access(python, X_OK) != 0) {
        skipped = "the wheels could not be fetched (scripts/prepare test)";
        return;
    }
    for (unsigned i = 0; i < sizeof listed / sizeof *listed; i++) {
        const char *script = strrchr(listed[i].tested, '/');
        CHECK(script, "%s", listed[i].tested);
        snprintf(command, sizeof command, "%s " SCRIPTS "%s", python, script);
        use(command, 4, full, sizeof full);
        for (uint32_t target = 0; target < 2 && !failed; target++) {
            use(command, target, got, sizeof got);
            if (!failed)
                CHECK(*full && !strcmp(full, got), "%s, target %u:\n%s\ninstead of\n%s", listed[i].what, target, got, full);
        }
        if (failed)
            return;
    }
}

static void code_that_the_user_calls_tolerant_is_resized(void)
{
    struct program p = START("ten_gnu", "COPLACE_TOLERANT=other:ten_*");
    set_target(p.page, 8);
    CHECK(ask_number(&p, "explicit 6") == 6 && p.page->max_team == 6 && p.page->rigid == 0);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "explicit 6") == 2 && p.page->rigid == 0 && p.page->requested == 6);
    CHECK(ask_number(&p, "explicit 1") == 1 && ask_number(&p, "team") == 2);
    CHECK(finish(&p) == 0);
    p = START("host", "COPLACE_TOLERANT=plugin_q.so");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_q.so", build_dir), "ok"));
    set_target(p.page, 2);
    CHECK(ask_number(&p, "explicit 1 3") == 2 && p.page->rigid == 0);
    CHECK(ask_number(&p, "explicit 0 3") == 3 && p.page->rigid == COPLACE_RIGID_EXPLICIT_NUM_THREADS,
          "one region that counts on its number makes the process rigid");
    CHECK(ask_number(&p, "explicit 1 3") == 3);
    CHECK(finish(&p) == 0);
    p = START("ten_gnu", "COPLACE_TOLERANT=1");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "explicit 3") == 1 && p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

const struct test tolerant_tests[] = {
    TEST(what_is_listed_computes_the_same_with_fewer_threads_than_it_asks_for),
    TEST(code_that_the_user_calls_tolerant_is_resized),
    {NULL, NULL},
};
