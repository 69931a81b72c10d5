/* Runtimes other than the one libgomp in the global scope. */
#define _GNU_SOURCE
#include "steer.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static void a_private_runtime_in_a_local_scope_is_found_and_resized(void)
{
    struct program p = START("host");
    CHECK(p.page && p.page->state == COPLACE_STATE_LOADED, "no runtime yet");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(ask_number(&p, "tail 0") == 4, "the first call is a jump from an object that is not its own");
    CHECK(!strcmp(ask(&p, "dlerror"), "none"), "our own lookups leave no error behind");
    CHECK(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED && p.page->max_team == 4 && p.page->rigid == 0);
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
    CHECK(ask_number(&p, "dynamic? 1") == 0 && !strcmp(ask(&p, "dynamic 1 1"), "ok") && p.page->rigid == 0);
    CHECK(!strcmp(ask(&p, "dynamic 0 0"), "ok") && p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0,
          "by a tail call, so that nobody knows which runtime was meant");
    CHECK(finish(&p) == 0);
}

static void a_runtime_is_found_through_the_library_that_brought_it(void)
{
    struct program p = START("host");
    /* Two copies are there, and the code that is called names neither. */
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_q.so", build_dir), "ok"));
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_u.so", build_dir), "ok"));
    CHECK(!strcmp(ask(&p, "set 1 3"), "ok") && ask_number(&p, "team 1") == 3 && ask_number(&p, "team 0") == 4);
    CHECK(p.page->runtimes == 2 && p.page->rigid == 0);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team 1") == 2 && ask_number(&p, "tail 1") == 2);
    CHECK(finish(&p) == 0);
}

static void more_runtimes_than_are_remembered_apart_each_keep_their_own(void)
{
    const char names[] = "pq1234567";
    struct program p = START("host");
    for (int i = 0; names[i]; i++) {
        CHECK(!strcmp(ask(&p, "open %d %s/plugin_%c.so", i, build_dir, names[i]), "ok"));
        CHECK(ask_number(&p, "team %d", i) == 4, "runtime %d", i);
    }
    CHECK(p.page->runtimes == 9 && p.page->rigid == 0);
    CHECK(!strcmp(ask(&p, "set 8 2"), "ok") && ask_number(&p, "team 8") == 2 && ask_number(&p, "team 0") == 4);
    for (int i = 0; names[i]; i++) {
        set_target(p.page, i % 3 + 1);
        CHECK(ask_under_flicker(&p, i == 8 ? "constructs 8 5\n" : "constructs 7 5\n", 4) == 0);
        CHECK(ask_number(&p, "constructs %d 2", i) == 0);
    }
    set_target(p.page, 1);
    for (int i = 0; names[i]; i++)
        CHECK(ask_number(&p, "team %d", i) == 1, "runtime %d", i);
    CHECK(finish(&p) == 0);
}

/* A region whose code no object holds, beside two runtimes: which of them is meant shows by who calls, and if no object
 * holds that either, it is the first of them. */
static void generated_code_beside_several_runtimes_runs_as_without_the_library(void)
{
#ifdef __x86_64__
    struct program p = START("host");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_q.so", build_dir), "ok"));
    CHECK(ask_number(&p, "generated 1 0") == 5050 && ask_number(&p, "generated 0 0") == 5050);
    CHECK(ask_number(&p, "generated 0 1") == 5050);
    CHECK(p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN, "and is left alone");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team 0") == 4 && ask_number(&p, "generated 1 0") == 5050);
    CHECK(finish(&p) == 0);
#endif
}

static bool confine(pid_t pid, int cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < cpus; cpu++)
        CPU_SET(cpu, &set);
    return sched_setaffinity(pid, sizeof set, &set) == 0;
}

static void a_runtime_loaded_while_the_machine_is_full_can_still_grow(void)
{
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    int cpus = CPU_COUNT(&all);
    if (cpus < 2 || !CPU_ISSET(0, &all)) {
        skipped = "it takes two CPUs, one of them CPU 0";
        return;
    }
    write_default(1, 0);
    struct program p = START("host", "OMP_NUM_THREADS");
    /* What the node does: it wishes for one thread, then confines the program; only now its runtime comes. */
    CHECK(p.page->target == 1 && confine(p.pid, 1));
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
    CHECK(ask_number(&p, "max 0") == cpus && ask_number(&p, "team 0") == 1);
    CHECK(p.page->max_team == (uint32_t)cpus && p.page->procs == (uint32_t)cpus);
    CHECK(sched_setaffinity(p.pid, sizeof all, &all) == 0);
    set_target(p.page, (uint32_t)cpus);
    sleep_ms(15);
    CHECK(ask_number(&p, "team 0") == cpus, "it has grown");
    CHECK(finish(&p) == 0);
    /* So does one that a confined program starts, but not one that chose its CPUs itself. */
    const char *const ways[] = {"%s/host", "exec taskset -c 0 %s/host", "taskset -c 0 sh -c '%s/host; true'"};
    for (unsigned i = 0; i < 3; i++) {
        char out[256], err[256], command[17000], program[8400];
        snprintf(program, sizeof program, ways[i], build_dir);
        snprintf(command, sizeof command, "unset OMP_NUM_THREADS; printf 'open 0 %s/plugin_p.so\nmax 0\n' | (%s)",
                 build_dir, program);
        CHECK(confine(0, i == 0 ? 1 : cpus));
        int status = run(command, out, sizeof out, err, sizeof err);
        CHECK(sched_setaffinity(0, sizeof all, &all) == 0 && status == 0, "%s: %s", program, err);
        CHECK(strchr(out, '\n') && strchr(out, '\n')[1] - '0' == (i == 0 ? cpus : 1), "%s: %s", program, out);
    }
}

static void an_unknown_runtime_is_left_alone(void)
{
    struct program p = START("app_kmp");
    CHECK(p.page && SOON(p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN));
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 0 0"), "called with 0 threads as the program asked, its own dyn-var answered");
    CHECK(finish(&p) == 0);
}

static void a_runtime_preloaded_before_the_library_is_called_unknown(void)
{
    char preload[8400];
    snprintf(preload, sizeof preload, "LD_PRELOAD=libgomp.so.1 %s/libcoplace_preload.so", build_dir);
    struct program p = START("app", preload);
    CHECK(p.page && SOON(p.page->rigid == COPLACE_RIGID_RUNTIME_UNKNOWN), "it answers the program's calls, not we");
    CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "dynamic?") == 0);
    CHECK(finish(&p) == 0);
}

static void what_is_loaded_later_takes_the_word_back(void)
{
    struct program p = START("host");
    CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok") && ask_number(&p, "team 0") == 4);
    uint64_t word = resizable_now(p.page);
    set_resizable(p.page, word);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team 0") == 2);
    CHECK(!strcmp(ask(&p, "open 1 %s/plugin_q.so", build_dir), "ok"));
    CHECK(ask_number(&p, "team 1") == 4 && ask_number(&p, "team 0") == 4 && resizable_now(p.page) != word);
    set_resizable(p.page, resizable_now(p.page));
    CHECK(ask_number(&p, "team 1") == 2 && ask_number(&p, "team 0") == 2);
    CHECK(finish(&p) == 0);
}

static void a_library_built_anew_is_the_new_one(void)
{
    struct program p = START("host");
    for (unsigned round = 0; round < 3; round++) {
        CHECK(!strcmp(ask(&p, "open 0 %s/plugin_p.so", build_dir), "ok"));
        /* Its variables begin anew, as it was unloaded in between, whatever regions of it ran. */
        CHECK(ask_number(&p, "tail 0") == 4, "round %u", round);
        CHECK(ask_number(&p, "explicit 0 3") == 3 && !strcmp(ask(&p, "close 0"), "ok"));
    }
    CHECK(finish(&p) == 0);
}

static void active_waiting_on_an_old_libgomp_makes_a_program_rigid(void)
{
    struct program p = START("app_old", "OMP_WAIT_POLICY=active");
    CHECK(p.page && SOON(p.page->rigid == COPLACE_RIGID_SPINS_IN_DOCK));
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 0 0"));
    CHECK(finish(&p) == 0);
    p = START("app_old");
    CHECK(p.page && p.page->rigid == 0);
    set_target(p.page, 1);
    CHECK(!strcmp(ask(&p, "go"), "1 1 0"));
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
    TEST(a_runtime_is_found_through_the_library_that_brought_it),
    TEST(more_runtimes_than_are_remembered_apart_each_keep_their_own),
    TEST(generated_code_beside_several_runtimes_runs_as_without_the_library),
    TEST(a_runtime_loaded_while_the_machine_is_full_can_still_grow),
    TEST(an_unknown_runtime_is_left_alone),
    TEST(a_runtime_preloaded_before_the_library_is_called_unknown),
    TEST(what_is_loaded_later_takes_the_word_back),
    TEST(a_library_built_anew_is_the_new_one),
    TEST(active_waiting_on_an_old_libgomp_makes_a_program_rigid),
    TEST(without_any_runtime_a_region_runs_on_one_thread),
    TEST(a_program_under_address_sanitizer_runs_and_is_resized),
    {NULL, NULL},
};
