/* Programs built by clang, on LLVM's runtime. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool there(const char *file)
{
    char path[8300];
    snprintf(path, sizeof path, "%s/%s", build_dir, file);
    bool yes = access(path, R_OK) == 0;
    if (!yes)
        skipped = "there is no clang with OpenMP (apt-get install clang libomp-dev)";
    return yes;
}

static void a_program_built_by_clang_follows_the_target(void)
{
    if (!there("ten_llvm"))
        return;
    struct program p = START("ten_llvm");
    CHECK(p.page);
    CHECK(SOON(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED) && p.page->max_team == 4, "before it has called anything");
    const uint32_t targets[] = {0, 2, 1, 3, 64, 1, 4};
    for (unsigned i = 0; i < sizeof targets / sizeof *targets; i++) {
        set_target(p.page, targets[i]);
        CHECK(ask_number(&p, "team") == (targets[i] && targets[i] < 4 ? targets[i] : 4), "target %u", targets[i]);
        CHECK(p.page->requested == 4 && p.page->lane[0].regions == i + 1);
    }
    CHECK(p.page->rigid == 0 && p.page->runtimes == 1 && p.page->max_team == 4);
    CHECK(ask_number(&p, "explicit 3") == 3 && p.page->rigid == COPLACE_RIGID_EXPLICIT_NUM_THREADS);
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 4, "from then on");
    CHECK(finish(&p) == 0);
}

static void its_other_ways_of_counting_on_a_number_make_it_rigid(void)
{
    if (!there("ten_llvm"))
        return;
    struct program p = START("ten_llvm");
    CHECK(ask_number(&p, "dynamic 1") == 1 && p.page->rigid == 0);
    CHECK(ask_number(&p, "dynamic 0") == 0 && p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0);
    CHECK(finish(&p) == 0);
    p = START("ten_llvm");
    CHECK(ask_number(&p, "league 1") == 1 && p.page->rigid == 0);
    CHECK(ask_number(&p, "league 2") == 2 && p.page->rigid == COPLACE_RIGID_EXPLICIT_NUM_THREADS);
    CHECK(p.page->nested == 0);
    CHECK(finish(&p) == 0);
    p = START("ten_llvm", "OMP_WAIT_POLICY=active", "OMP_NUM_THREADS=2");
    CHECK(SOON(p.page->rigid == COPLACE_RIGID_SPINS_IN_DOCK), "its idle threads would spin beside it for ever");
    CHECK(finish(&p) == 0);
}

static void regions_get_all_variables_however_many_they_capture(void)
{
    if (!there("ten_llvm"))
        return;
    struct program p = START("ten_llvm"), alone = START("ten_llvm", "LD_PRELOAD");
    char expected[256];
    for (int seed = 1; seed < 5; seed++) {
        snprintf(expected, sizeof expected, "%s", ask(&alone, "capture %d", seed));
        set_target(p.page, (uint32_t)seed);
        CHECK(!strcmp(ask(&p, "capture %d", seed), expected), "%s", expected);
    }
    CHECK(finish(&p) == 0 && finish(&alone) == 0);
}

static void its_runtime_in_a_local_scope_is_found_beside_a_libgomp(void)
{
    if (!there("plugin_l.so"))
        return;
    struct program p = START("host");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_l.so", build_dir), "ok"));
    CHECK(ask_number(&p, "team 0") == 4 && p.page->max_team == 4);
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_p.so", build_dir), "ok"));
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team 0") == 2 && ask_number(&p, "team 1") == 2);
    CHECK(p.page->runtimes == 2 && p.page->rigid == 0);
    CHECK(ask_number(&p, "constructs 0 20") == 0 && ask_number(&p, "constructs 1 20") == 0);
    CHECK(ask_number(&p, "explicit 0 3") == 3 && p.page->rigid == COPLACE_RIGID_EXPLICIT_NUM_THREADS);
    CHECK(finish(&p) == 0);
}

const struct test llvm_tests[] = {
    TEST(a_program_built_by_clang_follows_the_target),
    TEST(its_other_ways_of_counting_on_a_number_make_it_rigid),
    TEST(regions_get_all_variables_however_many_they_capture),
    TEST(its_runtime_in_a_local_scope_is_found_beside_a_libgomp),
    {NULL, NULL},
};
