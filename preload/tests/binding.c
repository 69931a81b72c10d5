/* Programs that choose CPUs for their threads. */
#define _GNU_SOURCE
#include "steer.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static bool is_kept(const struct coplace_page *page, long tid)
{
    for (unsigned i = 0; i < COPLACE_CHOSE_CPUS; i++)
        if (page->chose_cpus[i] == (uint32_t)tid)
            return true;
    return false;
}

/* The first two CPUs that there are; false, said, where there are none. */
static bool two_cpus(unsigned long *all, unsigned long *one, unsigned long *two)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return false;
    memcpy(all, &set, sizeof *all);
    *one = *all & -*all;
    *two = (*all & ~*one) & -(*all & ~*one);
    if (*two == 0)
        skipped = "it takes two CPUs";
    return *two != 0;
}

/* As the node does. */
static bool confine(pid_t pid, unsigned long mask)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    memcpy(&set, &mask, sizeof mask);
    return sched_setaffinity(pid, sizeof set, &set) == 0;
}

static unsigned long mask_of(pid_t tid)
{
    cpu_set_t set;
    unsigned long mask = 0;
    if (sched_getaffinity(tid, sizeof set, &set) == 0)
        memcpy(&mask, &set, sizeof mask);
    return mask;
}

static void threads_that_choose_their_cpus_are_kept_in_the_page(void)
{
    unsigned long all, one, two;
    if (!two_cpus(&all, &one, &two))
        return;
    struct program p = START("binder");
    set_target(p.page, 1);
    CHECK(confine(p.pid, one));
    CHECK(ask_number(&p, "set %lu", two) == 0 && mask_of(p.pid) == two, "out of its place");
    CHECK(is_kept(p.page, p.pid) && p.page->state & COPLACE_STATE_SET_OWN_MASK);
    CHECK((unsigned long)ask_number(&p, "get") == two);
    long tid = ask_number(&p, "thread %lu", one);
    CHECK(tid > 0 && is_kept(p.page, tid) && mask_of((pid_t)tid) == one, "by the thread's handle");
    CHECK((unsigned long)ask_number(&p, "attr %lu", one) == one, "made with it");
    CHECK(ask_number(&p, "fork %lu", one) == 0);
    CHECK(ask_number(&p, "set %lu", all) == 0 && !is_kept(p.page, p.pid), "anywhere is no choice");
    CHECK(is_kept(p.page, tid));
    CHECK(ask_number(&p, "set %lu", two) == 0);
    say(&p, "exec\n");
    CHECK((unsigned long)ask_number(&p, "get") == two && is_kept(p.page, p.pid), "kept by exec, as the mask is");
    CHECK(ask_number(&p, "set %lu", 0UL) == 22, "what the kernel refuses is refused");
    CHECK(finish(&p) == 0);
}

static void what_was_read_in_a_place_and_is_set_back_gives_all_back(void)
{
    unsigned long all, one, two;
    if (!two_cpus(&all, &one, &two))
        return;
    struct program p = START("binder");
    set_target(p.page, 1);
    /* As hwloc looks at a machine: it reads what it has, binds itself here and there, and goes back. */
    CHECK(confine(p.pid, two) && (unsigned long)ask_number(&p, "get") == two);
    CHECK(ask_number(&p, "set %lu", one) == 0 && is_kept(p.page, p.pid));
    CHECK(ask_number(&p, "back") == 0);
    CHECK(mask_of(p.pid) == all && !is_kept(p.page, p.pid), "the node confines it anew");
    /* Who has no node to confine it keeps what it sets. */
    set_target(p.page, 0);
    CHECK(confine(p.pid, two) && (unsigned long)ask_number(&p, "get") == two);
    CHECK(ask_number(&p, "back") == 0 && mask_of(p.pid) == two);
    CHECK(finish(&p) == 0);
}

static void more_threads_may_choose_than_the_page_keeps(void)
{
    unsigned long all, one, two;
    if (!two_cpus(&all, &one, &two))
        return;
    struct program p = START("binder");
    long tid = 0;
    for (unsigned i = 0; i < 3 * COPLACE_CHOSE_CPUS; i++) {
        tid = ask_number(&p, "thread %lu", one);
        CHECK(tid > 0 && mask_of((pid_t)tid) == one);
        CHECK(is_kept(p.page, tid), "the latest is");
    }
    CHECK(finish(&p) == 0);
}

static void a_team_that_the_runtime_binds_is_never_resized(void)
{
    const char *const ways[] = {"OMP_PROC_BIND=true", "OMP_PLACES=threads", "GOMP_CPU_AFFINITY=0"};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct program p = START("app", ways[i]);
        CHECK(SOON(p.page->rigid & COPLACE_RIGID_BINDS_THREADS), "%s", ways[i]);
        set_target(p.page, 1);
        CHECK(ask_number(&p, "team") == 4, "%s", ways[i]);
        CHECK(finish(&p) == 0);
    }
    struct program p = START("app", "OMP_PROC_BIND=false");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 1 && p.page->rigid == 0);
    CHECK(finish(&p) == 0);
}

const struct test binding_tests[] = {
    TEST(threads_that_choose_their_cpus_are_kept_in_the_page),
    TEST(what_was_read_in_a_place_and_is_set_back_gives_all_back),
    TEST(more_threads_may_choose_than_the_page_keeps),
    TEST(a_team_that_the_runtime_binds_is_never_resized),
    {NULL, NULL},
};
