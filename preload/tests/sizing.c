/* What size a region gets. */
#define _GNU_SOURCE
#include "steer.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static void a_team_follows_the_target_at_the_next_region(void)
{
    struct program p = START("app");
    const uint32_t targets[] = {2, 1, 3, 4, 1, 4, 2};
    CHECK(ask_number(&p, "team") == 4);
    for (unsigned i = 0; i < sizeof targets / sizeof *targets; i++) {
        sleep_ms(15); /* growing is held for 10 ms after a shrinking */
        set_target(p.page, targets[i]);
        CHECK(ask_number(&p, "team") == targets[i], "target %u", targets[i]);
        CHECK(p.page->applied_seq == p.page->target_seq);
        CHECK(p.page->requested == 4);
    }
    set_target(p.page, 0);
    sleep_ms(15);
    CHECK(ask_number(&p, "team") == 4, "no wish");
    CHECK(p.page->lane[0].resizes == 8, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

static void a_team_is_never_larger_than_the_program_was_told(void)
{
    struct program p = START("app");
    set_target(p.page, 64);
    CHECK(ask_number(&p, "team") == 4);
    CHECK(ask_number(&p, "threads= 2") == 2);
    CHECK(ask_number(&p, "team") == 2, "the program's own bound");
    CHECK(p.page->max_team == 4);
    CHECK(ask_number(&p, "threads= 6") == 6);
    CHECK(ask_number(&p, "team") == 6);
    CHECK(p.page->max_team == 6);
    set_target(p.page, 3);
    CHECK(ask_number(&p, "team") == 3);
    CHECK(ask_number(&p, "max") == 6, "what the program is told does not change with the partition");
    CHECK(p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

static void a_confined_program_still_sees_the_processors_it_started_with(void)
{
    struct program p = START("app");
    long procs = ask_number(&p, "procs");
    CHECK(procs >= 1 && p.page->procs == (uint32_t)procs);
    cpu_set_t all, one;
    CHECK(sched_getaffinity(p.pid, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(p.pid, sizeof one, &one) == 0);
    CHECK(ask_number(&p, "procs") == 1, "without a wish it is the program's own doing");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "procs") == procs);
    CHECK(finish(&p) == 0);
}

static void a_thread_limit_of_the_user_holds(void)
{
    struct program p = START("app", "OMP_THREAD_LIMIT=3");
    set_target(p.page, 4);
    CHECK(ask_number(&p, "team") == 3);
    CHECK(p.page->requested == 3);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2);
    CHECK(finish(&p) == 0);
}

static void an_explicit_number_of_threads_makes_a_program_rigid(void)
{
    struct program p = START("app");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 1);
    CHECK(ask_number(&p, "explicit 3") == 3, "never resized");
    CHECK(p.page->rigid == COPLACE_RIGID_EXPLICIT_NUM_THREADS);
    CHECK(ask_number(&p, "team") == 4, "and neither is what comes after");
    CHECK(regions_of_size(p.page, 3) == 1 && regions_of_size(p.page, 4) == 1);
    CHECK(finish(&p) == 0);
}

static void a_region_whose_if_clause_is_false_makes_no_program_rigid(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "if 0") == 1);
    CHECK(ask_number(&p, "explicit 1") == 1);
    CHECK(p.page->rigid == 0);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "if 1") == 2);
    CHECK(p.page->lane[0].resizes == 1, "regions of one thread by the program's will are no resizes");
    CHECK(finish(&p) == 0);
}

static void turning_dyn_var_off_makes_a_program_rigid(void)
{
    struct program p = START("app");
    set_target(p.page, 2);
    CHECK(ask_number(&p, "dynamic?") == 0, "as without the library");
    CHECK(ask_number(&p, "team") == 2);
    CHECK(ask_number(&p, "dynamic 0") == 0);
    CHECK(p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0);
    CHECK(ask_number(&p, "team") == 4);
    CHECK(ask_number(&p, "dynamic 1") == 1);
    CHECK(p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0, "from then on");
    CHECK(finish(&p) == 0);
}

static void turning_dyn_var_on_leaves_sizes_to_the_target_not_to_the_load(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "dynamic 1") == 1);
    CHECK(ask_number(&p, "team") == 4, "libgomp's own dyn-var would give two at most here");
    set_target(p.page, 3);
    CHECK(ask_number(&p, "team") == 3);
    CHECK(p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

static void a_declared_program_is_rigid_from_its_first_region(void)
{
    struct program p = START("app", "COPLACE_RIGID=1");
    CHECK(p.page->rigid == COPLACE_RIGID_DECLARED);
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 4);
    CHECK(finish(&p) == 0);
}

static void the_default_page_gives_the_first_target_and_the_declaration(void)
{
    write_default(2, 0);
    struct program p = START("app");
    CHECK(p.page->target == 2);
    CHECK(ask_number(&p, "team") == 2, "the first region already");
    CHECK(finish(&p) == 0);
    write_default(3, COPLACE_RIGID_DECLARED | COPLACE_RIGID_SET_DYNAMIC_0);
    p = START("app");
    CHECK(p.page->rigid == COPLACE_RIGID_DECLARED, "only the declaration is taken over");
    CHECK(ask_number(&p, "team") == 4);
    CHECK(finish(&p) == 0);
}

static void fortran_programs_are_heard_too(void)
{
    struct program p = START("app");
    CHECK(!strcmp(ask(&p, "fortran 7"), "7 0"));
    CHECK(ask_number(&p, "team") == 7 && p.page->max_team == 7);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2);
    CHECK(ask_number(&p, "fortran-dynamic 1 -1") == 1 && ask_number(&p, "fortran-dynamic 0 1") == 1);
    CHECK(p.page->rigid == 0);
    CHECK(ask_number(&p, "fortran-dynamic 0 -1") == 0);
    CHECK(p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0);
    CHECK(finish(&p) == 0);
    p = START("app");
    CHECK(ask_number(&p, "fortran-dynamic 1 0") == 0);
    CHECK(p.page->rigid == COPLACE_RIGID_SET_DYNAMIC_0);
    CHECK(finish(&p) == 0);
}

static void regions_started_in_halves_follow_the_target(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "halves") == 4);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "halves") == 2);
    set_target(p.page, 1);
    CHECK(ask_number(&p, "halves") == 1);
    CHECK(p.page->lane[0].regions == 3 && regions_of_size(p.page, 1) == 1 && regions_of_size(p.page, 2) == 1);
    CHECK(!coplace_page_in_region(p.page));
    CHECK(finish(&p) == 0);
}

static void regions_in_regions_stay_serial_even_when_the_outer_one_is_shrunk_to_one(void)
{
    struct program p = START("app");
    const char *answer = ask(&p, "nested");
    CHECK(!strcmp(answer, "4 1 4"), "got %s", answer);
    set_target(p.page, 1);
    answer = ask(&p, "nested");
    CHECK(!strcmp(answer, "1 1 1"), "got %s", answer);
    set_target(p.page, 2);
    sleep_ms(15);
    answer = ask(&p, "nested");
    CHECK(!strcmp(answer, "2 1 2"), "got %s", answer);
    CHECK(p.page->lane[0].regions == 3, "only outermost regions are counted");
    CHECK(finish(&p) == 0);
}

static void nested_teams_together_keep_to_the_target(void)
{
    struct program p = START("app", "OMP_NUM_THREADS=4,3");
    CHECK(ask_number(&p, "levels 2") == 2);
    const char *answer = ask(&p, "nested");
    CHECK(!strncmp(answer, "4 3 ", 4), "got %s", answer);
    for (uint32_t target = 1; target <= 6; target++) {
        int outer, inner, most;
        sleep_ms(15);
        set_target(p.page, target);
        answer = ask(&p, "nested");
        CHECK(sscanf(answer, "%d %d %d", &outer, &inner, &most) == 3);
        CHECK(outer == (int)(target < 4 ? target : 4), "target %u: %s", target, answer);
        CHECK(most <= (int)target, "target %u: %s", target, answer);
    }
    CHECK(p.page->nested == 0, "all nested teams are gone again");
    CHECK(finish(&p) == 0);
}

/* Passing them on is a matter of each machine's registers and stack. */
static void a_region_is_passed_on_with_all_its_captured_variables_however_many(void)
{
    struct program p = START("app_kmp");
    CHECK(!strcmp(ask(&p, "capture"), "0 1 2 3 4 5 6 10 11 3001 3002 "));
    CHECK(finish(&p) == 0);
}

static void a_program_that_nobody_vouches_for_keeps_its_threads(void)
{
    struct program p = START("app");
    set_resizable(p.page, resizable_now(p.page) + 1); /* found for something that was never loaded */
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 4 && !coplace_page_may_resize(p.page));
    set_resizable(p.page, resizable_now(p.page));
    CHECK(ask_number(&p, "team") == 2 && coplace_page_may_resize(p.page));
    CHECK(ask_number(&p, "explicit 3") == 2 && p.page->rigid == 0, "its code was looked at, too");
    set_resizable(p.page, 0);
    CHECK(ask_number(&p, "team") == 4);
    CHECK(finish(&p) == 0);
}

const struct test sizing_tests[] = {
    TEST(a_program_that_nobody_vouches_for_keeps_its_threads),
    TEST(a_team_follows_the_target_at_the_next_region),
    TEST(a_team_is_never_larger_than_the_program_was_told),
    TEST(a_confined_program_still_sees_the_processors_it_started_with),
    TEST(a_thread_limit_of_the_user_holds),
    TEST(an_explicit_number_of_threads_makes_a_program_rigid),
    TEST(a_region_whose_if_clause_is_false_makes_no_program_rigid),
    TEST(turning_dyn_var_off_makes_a_program_rigid),
    TEST(turning_dyn_var_on_leaves_sizes_to_the_target_not_to_the_load),
    TEST(a_declared_program_is_rigid_from_its_first_region),
    TEST(the_default_page_gives_the_first_target_and_the_declaration),
    TEST(fortran_programs_are_heard_too),
    TEST(regions_started_in_halves_follow_the_target),
    TEST(regions_in_regions_stay_serial_even_when_the_outer_one_is_shrunk_to_one),
    TEST(nested_teams_together_keep_to_the_target),
    TEST(a_region_is_passed_on_with_all_its_captured_variables_however_many),
    {NULL, NULL},
};
