/* Runtimes other than the one libgomp in the global scope. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <string.h>

static void a_private_runtime_in_a_local_scope_is_found_and_resized(void)
{
    struct program p = START("host");
    CHECK(p.page && p.page->state == COPLACE_STATE_LOADED, "no runtime yet");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(ask_number(&p, "tail 0") == 4, "the first call is a jump from an object that is not its own");
    CHECK(!strcmp(ask(&p, "dlerror"), "none"), "our own lookups leave no error behind");
    CHECK(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED && p.page->told == 4 && p.page->rigid == 0);
    CHECK(ask_number(&p, "max 0") == 4);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team 0") == 2);
    CHECK(ask_number(&p, "tail 0") == 6);
    CHECK(p.page->runtimes == 1 && p.page->lane[0].regions == 3);
    CHECK(ask_under_flicker(&p, "constructs 0 100\n", 4) == 0);
    CHECK(finish(&p) == 0);
}

static void several_runtimes_in_one_process_are_not_mixed_up(void)
{
    struct program p = START("host");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_q.so", build_dir), "ok"));
    CHECK(ask_number(&p, "team 0") == 4 && ask_number(&p, "team 1") == 4);
    CHECK(p.page->runtimes == 2);
    CHECK(!strcmp(ask(&p, "set 1 2"), "ok"));
    CHECK(ask_number(&p, "team 0") == 4 && ask_number(&p, "team 1") == 2, "each has its own number");
    CHECK(ask_number(&p, "constructs 0 5") == 0 && ask_number(&p, "constructs 1 5") == 0);
    set_target(p.page, 3);
    CHECK(ask_number(&p, "team 0") == 3 && ask_number(&p, "team 1") == 2);
    CHECK(ask_number(&p, "max 0") == 4 && ask_number(&p, "max 1") == 2);
    CHECK(ask_number(&p, "dynamic? 1") == 1 && !strcmp(ask(&p, "dynamic 1 1"), "ok") && p.page->rigid == 0);
    CHECK(!strcmp(ask(&p, "dynamic 0 0"), "ok") && p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0,
          "by a tail call, so that nobody knows which runtime was meant");
    CHECK(finish(&p) == 0);
}

static void an_unknown_runtime_is_left_alone(void)
{
    struct program p = START("app_kmp");
    CHECK(p.page && p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN);
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 0 0"), "called with 0 threads as the program asked, its own dyn-var answered");
    CHECK(finish(&p) == 0);
}

static void a_runtime_preloaded_before_the_library_is_called_unknown(void)
{
    char preload[8400];
    snprintf(preload, sizeof preload, "LD_PRELOAD=libgomp.so.1 %s/libcoplace_preload.so", build_dir);
    struct program p = START("app", preload);
    CHECK(p.page && p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN, "it answers the program's calls, not we");
    CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "dynamic?") == 0);
    CHECK(finish(&p) == 0);
}

static void active_waiting_on_an_old_libgomp_makes_a_program_rigid(void)
{
    struct program p = START("app_old", "OMP_WAIT_POLICY=active");
    CHECK(p.page && p.page->rigid == COPLACE_RIGID_SPINS_IN_DOCK);
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 0 0"));
    CHECK(finish(&p) == 0);
    p = START("app_old");
    CHECK(p.page && p.page->rigid == 0);
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 1 1"));
    CHECK(finish(&p) == 0);
}

static void without_any_runtime_a_region_runs_on_one_thread(void)
{
    struct program p = START("app_none");
    CHECK(!strcmp(ask(&p, "go"), "1 -2 0"));
    CHECK(p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN);
    CHECK(finish(&p) == 0);
}

static void a_program_under_address_sanitizer_runs_and_is_resized(void)
{
    struct program p = START("app_asan", "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0");
    CHECK(p.page);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2);
    CHECK(ask_under_flicker(&p, "constructs 20\n", 4) == 0);
    CHECK(finish(&p) == 0);
}

const struct test runtimes_tests[] = {
    TEST(a_private_runtime_in_a_local_scope_is_found_and_resized),
    TEST(several_runtimes_in_one_process_are_not_mixed_up),
    TEST(an_unknown_runtime_is_left_alone),
    TEST(a_runtime_preloaded_before_the_library_is_called_unknown),
    TEST(active_waiting_on_an_old_libgomp_makes_a_program_rigid),
    TEST(without_any_runtime_a_region_runs_on_one_thread),
    TEST(a_program_under_address_sanitizer_runs_and_is_resized),
    {NULL, NULL},
};
