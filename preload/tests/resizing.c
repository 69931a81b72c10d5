/* Sizes that change while the program runs, and what becomes of the threads. */
#define _GNU_SOURCE
#include "steer.h"

#include <string.h>

static void every_construct_computes_the_same_under_a_flickering_target(void)
{
    struct program p = START("app");
    CHECK(ask_under_flicker(&p, "constructs 10000\n", 5) == 0, "results were wrong");
    const struct coplace_lane *lane = &p.page->lane[0];
    /* On a busy machine the target flickers more slowly than regions begin. */
    const uint64_t until = monotonic_ns() + PATIENCE_NS;
    while (lane->resizes <= 3000 && monotonic_ns() < until)
        CHECK(ask_under_flicker(&p, "constructs 2000\n", 5) == 0, "results were wrong");
    uint64_t left = 0;
    for (unsigned i = 0; i <= COPLACE_SIZES; i++)
        left += lane->size[i].regions;
    CHECK(lane->resizes > 3000, "resizes %lu", (unsigned long)lane->resizes);
    CHECK(lane->regions == left, "entered %lu left %lu", (unsigned long)lane->regions, (unsigned long)left);
    CHECK(regions_of_size(p.page, 5) == 0);
    for (unsigned size = 1; size <= 4; size++)
        CHECK(regions_of_size(p.page, size) > 0, "size %u", size);
    CHECK(p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

static void ten_thousand_resizes_during_one_run_lose_nothing(void)
{
    struct program p = START("app", "OMP_NUM_THREADS=2");
    const uint64_t until = monotonic_ns() + 2 * PATIENCE_NS;
    while (p.page->lane[0].resizes < 10000 && monotonic_ns() < until)
        CHECK(ask_under_flicker(&p, "constructs 500\n", 2) == 0, "results were wrong");
    CHECK(p.page->lane[0].resizes >= 10000, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(p.page->rigid == 0 && !coplace_page_in_region(p.page));
    CHECK(finish(&p) == 0);
}

static void active_waiting_survives_a_flickering_target(void)
{
    struct program p = START("app", "OMP_WAIT_POLICY=active", "OMP_NUM_THREADS=2");
    CHECK(p.page->state & COPLACE_STATE_SPINS_LONG);
    const uint64_t until = monotonic_ns() + PATIENCE_NS;
    while (p.page->lane[0].resizes <= 5 && monotonic_ns() < until)
        CHECK(ask_under_flicker(&p, "constructs 1500\n", 2) == 0, "results were wrong");
    CHECK(p.page->lane[0].resizes > 5, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(finish(&p) == 0);
}

static void a_flickering_target_does_not_remake_the_pool_each_time(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "team") == 4);
    /* On a busy machine the target flickers more slowly than regions begin. */
    long births = 0;
    const uint64_t began = monotonic_ns();
    while (p.page->lane[0].resizes <= 200 && monotonic_ns() - began < PATIENCE_NS)
        births += ask_under_flicker(&p, "births 500\n", 4);
    const long ms = (long)((monotonic_ns() - began) / 1000000);
    /* Three new threads at most for each hold of 10 ms, and the first team. */
    CHECK(births <= 3 * (ms / 10 + 2) + 4, "%ld threads were made in %ld ms", births, ms);
    CHECK(p.page->lane[0].resizes > 200, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(finish(&p) == 0);
}

/* A thread that ends is gone for the kernel a moment later. */
static bool kernel_threads_become(struct program *p, long n)
{
    return SOON(ask_number(p, "kernel-threads") == n);
}

/* A CPU that the machine's host takes away may be charged to whoever had it; who spins is charged each time. */
static bool sleeps_without_cpu_time(struct program *p)
{
    for (int i = 0; i < 10; i++) {
        const long ms = ask_number(p, "cpu-while-asleep 100");
        if (ms >= 0 && ms < 20)
            return true;
    }
    return false;
}

static void surplus_threads_are_gone_after_shrinking(void)
{
    struct program p = START("app");
    /* One, and what an emulator adds. */
    const long alone = ask_number(&p, "kernel-threads");
    CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "kernel-threads") == alone + 3);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2);
    CHECK(kernel_threads_become(&p, alone + 1), "libgomp ends what a team of two or more does not use");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 1);
    CHECK(ask_number(&p, "kernel-threads") == alone + 1, "a team of one leaves the pool asleep");
    CHECK(sleeps_without_cpu_time(&p));
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2, "growing within the pool is not held back");
    CHECK(finish(&p) == 0);
}

static void threads_that_spin_for_ever_are_ended_when_a_team_shrinks_to_one(void)
{
    const char *const ways[][3] = {{"OMP_WAIT_POLICY=ACTIVE", NULL}, {"GOMP_SPINCOUNT=infinite", NULL},
                                   {"GOMP_SPINCOUNT=20G", "OMP_WAIT_POLICY=passive", NULL}};
    for (unsigned i = 0; i < 3; i++) {
        struct program p = start("app", ways[i]);
        CHECK(p.page->state & COPLACE_STATE_SPINS_LONG);
        const long alone = ask_number(&p, "kernel-threads");
        CHECK(ask_number(&p, "team") == 4);
        set_target(p.page, 1);
        CHECK(ask_number(&p, "team") == 1);
        CHECK(kernel_threads_become(&p, alone));
        CHECK(sleeps_without_cpu_time(&p));
        sleep_ms(15);
        set_target(p.page, 4);
        CHECK(ask_number(&p, "team") == 4);
        CHECK(finish(&p) == 0);
    }
    struct program p = START("app", "GOMP_SPINCOUNT=1000");
    CHECK(!(p.page->state & COPLACE_STATE_SPINS_LONG));
    CHECK(finish(&p) == 0);
}

static void several_masters_share_the_target(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "masters 4 300") == 0);
    CHECK(p.page->masters == 4 && regions_entered(p.page) == 1200);
    CHECK(p.page->lane[1].regions > 0 && regions_of_size(p.page, 4) == 1200);
    CHECK(!coplace_page_in_region(p.page) && (uint32_t)p.page->lane[1].now == 0);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "masters 4 300") == 0);
    CHECK(p.page->masters == 8 && regions_entered(p.page) == 2400);
    CHECK(regions_of_size(p.page, 1) + regions_of_size(p.page, 2) == 1200, "no team is larger than the target");
    CHECK(regions_of_size(p.page, 1) > 0, "and they do not each take all of it");
    CHECK(ask_under_flicker(&p, "masters 3 2000\n", 4) == 0);
    CHECK(!coplace_page_in_region(p.page) && (uint32_t)p.page->lane[1].now == 0);
    CHECK(finish(&p) == 0);
}

static void a_running_region_is_seen_from_outside_and_keeps_its_size(void)
{
    struct program p = START("app");
    say(&p, "births 0\n"); /* until it is told something */
    CHECK(SOON(coplace_page_in_region(p.page) && coplace_page_running(p.page) == 4));
    /* What page.h promises: behind a barrier, a region that runs is seen, and one that is not takes the
     * new target. So from the first look that shows no more, there never is more. */
    set_target(p.page, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const uint64_t until = monotonic_ns() + PATIENCE_NS;
    while (coplace_page_running(p.page) > 1)
        CHECK(monotonic_ns() < until);
    int more = 0;
    const uint64_t entered = regions_entered(p.page);
    for (int i = 0; i < 100000 || regions_entered(p.page) < entered + 100; i++) {
        more += coplace_page_running(p.page) > 1;
        if (i % 1000 == 0)
            CHECK(monotonic_ns() < until);
    }
    CHECK(more == 0, "in %d looks", more);
    say(&p, "team\n");
    listen_to(&p);
    listen_to(&p);
    CHECK(finish(&p) == 0);
}

const struct test resizing_tests[] = {
    TEST(every_construct_computes_the_same_under_a_flickering_target),
    TEST(ten_thousand_resizes_during_one_run_lose_nothing),
    TEST(active_waiting_survives_a_flickering_target),
    TEST(a_flickering_target_does_not_remake_the_pool_each_time),
    TEST(surplus_threads_are_gone_after_shrinking),
    TEST(threads_that_spin_for_ever_are_ended_when_a_team_shrinks_to_one),
    TEST(several_masters_share_the_target),
    TEST(a_running_region_is_seen_from_outside_and_keeps_its_size),
    {NULL, NULL},
};
