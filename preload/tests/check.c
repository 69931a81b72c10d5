/* The tests of the preload library: each steers real programs from another process, as the node does.
 *   check BUILD_DIR [WORD]     only tests whose name contains WORD */
#define _GNU_SOURCE
#include "steer.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t start_time_of(pid_t pid)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(text, sizeof text, f))
        return 0;
    fclose(f);
    unsigned long long value = 0;
    sscanf(strrchr(text, ')') + 2, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
           &value);
    return value;
}

static void the_page_describes_its_program(void)
{
    struct program p = START("app");
    CHECK(p.page);
    CHECK(p.page->version == COPLACE_PAGE_VERSION && p.page->bytes == 4096);
    CHECK(p.page->pid == p.pid);
    CHECK(p.page->start_time == start_time_of(p.pid) && p.page->start_time != 0);
    CHECK(p.page->state & COPLACE_STATE_LOADED);
    CHECK(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED, "before the program has called anything");
    CHECK(p.page->told == 4, "told %u", p.page->told);
    CHECK(p.page->rigid == 0 && p.page->runtimes == 1 && p.page->generation == 0);
    CHECK(ask_number(&p, "team") == 4);
    CHECK(p.page->lane[0].regions == 1 && regions_of_size(p.page, 4) == 1);
    CHECK(p.page->lane[0].size[3].ns > 0 && p.page->lane[0].size[3].ns < UINT64_C(10000000000));
    CHECK(p.page->lane[0].left_ns > p.page->lane[0].entered_ns && p.page->lane[0].entered_ns > p.page->loaded_ns);
    CHECK(!coplace_page_in_region(p.page) && coplace_page_running(p.page) == 0 && coplace_page_team(p.page) == 4);
    CHECK(finish(&p) == 0);
    CHECK(p.page->state & COPLACE_STATE_EXITED);
    char path[8300];
    struct stat status;
    snprintf(path, sizeof path, "%s/%d", pages_dir, (int)p.pid);
    CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600, "the page stays for the last figures");
}

static void a_running_region_is_seen_from_outside_and_keeps_its_size(void)
{
    struct program p = START("app");
    say(&p, "births 300\n");
    int seen = 0;
    for (int i = 0; i < 200; i++, sleep_ms(1))
        seen += coplace_page_in_region(p.page) && coplace_page_running(p.page) == 4;
    CHECK(seen > 0, "%d of 200 looks", seen);
    /* What page.h promises: behind a barrier, a region that runs is seen, and one that is not takes the
     * new target. So from the first look that shows no more, there never is more. */
    set_target(p.page, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (int looks = 0; coplace_page_running(p.page) > 1; looks++)
        CHECK(looks < 10000000);
    int more = 0;
    for (int i = 0; i < 100000; i++)
        more += coplace_page_running(p.page) > 1;
    CHECK(more == 0, "%d of 100000 looks", more);
    listen_to(&p);
    CHECK(finish(&p) == 0);
}

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
    CHECK(p.page->told == 4);
    CHECK(ask_number(&p, "threads= 6") == 6);
    CHECK(ask_number(&p, "team") == 6);
    CHECK(p.page->told == 6);
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
    CHECK(ask_number(&p, "dynamic?") == 1, "fewer threads than asked for are announced");
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
    CHECK(ask_number(&p, "dynamic?") == 0, "it may rely on threadprivate data");
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
    CHECK(!strcmp(ask(&p, "fortran 7"), "7 1"));
    CHECK(ask_number(&p, "team") == 7 && p.page->told == 7);
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
    CHECK(!strcmp(ask(&p, "nested"), "4 1 4"));
    set_target(p.page, 1);
    const char *answer = ask(&p, "nested");
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

static uint32_t seed = 12345;
static uint32_t next_random(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 16;
}

/* Changes the target every 20 us or so until the program answers: mostly between one and the greatest, which
 * libgomp's pool outlives, now and then to something between, which ends threads. */
static long ask_under_flicker(struct program *p, const char *question, uint32_t most)
{
    say(p, question);
    int fd = p->out;
    prctl(PR_SET_TIMERSLACK, 1); /* or the kernel makes 70 of the 20 */
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(fd, &ready);
        struct timeval wait = {0, 20};
        if (select(fd + 1, &ready, NULL, NULL, &wait) > 0)
            return strtol(listen_to(p), NULL, 10);
        uint32_t dice = next_random() % 64;
        set_target(p->page, dice < 31 ? 1 : dice < 62 ? most : 1 + next_random() % most);
    }
}

static void every_construct_computes_the_same_under_a_flickering_target(void)
{
    struct program p = START("app");
    CHECK(ask_under_flicker(&p, "constructs 10000\n", 5) == 0, "results were wrong");
    const struct coplace_lane *lane = &p.page->lane[0];
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

static void active_waiting_survives_a_flickering_target(void)
{
    struct program p = START("app", "OMP_WAIT_POLICY=active", "OMP_NUM_THREADS=2");
    CHECK(p.page->state & COPLACE_STATE_SPINS_LONG);
    CHECK(ask_under_flicker(&p, "constructs 1500\n", 2) == 0, "results were wrong");
    CHECK(p.page->lane[0].resizes > 5, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(finish(&p) == 0);
}

static void a_flickering_target_does_not_remake_the_pool_each_time(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "team") == 4);
    long births = ask_under_flicker(&p, "births 500\n", 4);
    /* Three new threads at most for each hold of 10 ms, and the first team. */
    CHECK(births <= 3 * (500 / 10 + 2) + 4, "%ld threads were made", births);
    CHECK(p.page->lane[0].resizes > 200, "resizes %lu", (unsigned long)p.page->lane[0].resizes);
    CHECK(finish(&p) == 0);
}

static void surplus_threads_are_gone_after_shrinking(void)
{
    struct program p = START("app");
    CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "kernel-threads") == 4);
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2);
    sleep_ms(20);
    CHECK(ask_number(&p, "kernel-threads") == 2, "libgomp ends what a team of two or more does not use");
    set_target(p.page, 1);
    CHECK(ask_number(&p, "team") == 1);
    CHECK(ask_number(&p, "kernel-threads") == 2, "a team of one leaves the pool asleep");
    CHECK(ask_number(&p, "cpu-while-asleep 100") < 20);
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
        CHECK(ask_number(&p, "team") == 4);
        set_target(p.page, 1);
        CHECK(ask_number(&p, "team") == 1);
        CHECK(ask_number(&p, "kernel-threads") == 1);
        CHECK(ask_number(&p, "cpu-while-asleep 100") < 20);
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

static void a_forks_child_has_its_own_page(void)
{
    write_default(3, 0);
    struct program p = START("app");
    set_target(p.page, 1);
    int child = (int)ask_number(&p, "fork");
    struct coplace_page *page = page_of(child, 2000);
    CHECK(child > 0 && page);
    CHECK(page->pid == child && page->start_time == start_time_of(child));
    CHECK(page->target == 3, "the default, not its parent's");
    CHECK(page->state & COPLACE_STATE_RUNTIME_INITIALISED && page->told == 4);
    CHECK(regions_entered(page) == 0);
    CHECK(ask_number(&p, "go") == 3, "and sized by its own page");
    CHECK(regions_entered(page) == 1 && regions_entered(p.page) == 0);
    CHECK(ask_number(&p, "end") == 0);
    CHECK(ask_number(&p, "team") == 1, "the parent goes on by its own");
    CHECK(finish(&p) == 0);
}

static void exec_starts_the_page_anew_and_keeps_the_target(void)
{
    struct program p = START("app");
    set_target(p.page, 2);
    CHECK(ask_number(&p, "team") == 2 && ask_number(&p, "explicit 3") == 3);
    CHECK(p.page->rigid != 0);
    for (uint32_t times = 1; times <= 20; times++) {
        say(&p, "exec\nmax\n");
        /* Looked at all the while: it is never seen half made. */
        for (fd_set ready;;) {
            uint32_t before = __atomic_load_n(&p.page->generation, __ATOMIC_ACQUIRE);
            if (__atomic_load_n(&p.page->magic, __ATOMIC_ACQUIRE) == COPLACE_PAGE_MAGIC) {
                struct coplace_page seen = *p.page;
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
                if (p.page->magic == COPLACE_PAGE_MAGIC && p.page->generation == before)
                    CHECK(seen.version == COPLACE_PAGE_VERSION && seen.pid == p.pid && seen.start_time != 0 &&
                          seen.state & COPLACE_STATE_LOADED && seen.target == 2);
            }
            FD_ZERO(&ready);
            FD_SET(p.out, &ready);
            if (select(p.out + 1, &ready, NULL, NULL, &(struct timeval){0, 0}) > 0)
                break;
        }
        CHECK(!strcmp(listen_to(&p), "4"));
        CHECK(p.page->magic == COPLACE_PAGE_MAGIC && p.page->pid == p.pid && p.page->generation == times);
        CHECK(p.page->rigid == 0 && regions_entered(p.page) == 0 && p.page->target == 2);
        CHECK(ask_number(&p, "team") == 2);
    }
    CHECK(finish(&p) == 0);
}

static void a_leftover_of_an_earlier_process_of_that_pid_is_replaced(void)
{
    struct program p = START("app");
    set_target(p.page, 2);
    struct coplace_page *old = p.page;
    old->start_time--; /* as if it were somebody else's */
    say(&p, "exec\n");
    CHECK(ask_number(&p, "team") == 4);
    struct coplace_page *page = page_of(p.pid, 1000);
    CHECK(page && page->start_time == start_time_of(p.pid) && page->target == 0 && page->generation == 0);
    CHECK(regions_entered(page) == 1 && regions_entered(old) == 0 && old->magic == COPLACE_PAGE_MAGIC);
    CHECK(finish(&p) == 0);
}

static void without_a_directory_the_library_is_inert(void)
{
    struct program p = START("app", "COPLACE_PAGES");
    CHECK(ask_number(&p, "dynamic?") == 0);
    CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "explicit 3") == 3);
    CHECK(ask_number(&p, "constructs 5") == 0);
    CHECK(ask_number(&p, "dynamic 1") == 1);
    CHECK(ask_number(&p, "team") <= 4);
    CHECK(finish(&p) == 0 && files_in_pages_dir() == 0);
}

static void a_directory_that_cannot_be_written_leaves_it_inert(void)
{
    char file[8300];
    snprintf(file, sizeof file, "COPLACE_PAGES=%s/libcoplace_preload.so", build_dir);
    const char *const ways[] = {"COPLACE_PAGES=/nonexistent/pages", "COPLACE_PAGES=/proc", "COPLACE_PAGES=", file};
    for (unsigned i = 0; i < 4; i++) {
        struct program p = START("app", ways[i]);
        CHECK(ask_number(&p, "dynamic?") == 0, "%s", ways[i]);
        CHECK(ask_number(&p, "team") == 4 && ask_number(&p, "constructs 2") == 0, "%s", ways[i]);
        CHECK(finish(&p) == 0, "%s", ways[i]);
    }
    char out[4096], err[4096], command[8400];
    snprintf(command, sizeof command, "ulimit -f 0; exec %s/plain", build_dir);
    CHECK(run(command, out, sizeof out, err, sizeof err) == 0 || !*err, "a limit on file sizes: %s", err);
}

static void programs_without_openmp_see_nothing_of_it(void)
{
    char out[4096], err[4096], command[8400];
    const char *const commands[] = {"exec ls /", "exec %s/plain", "exec %s/plain_static", "(true); (true); ls / | cat"};
    for (unsigned i = 0; i < 4; i++) {
        snprintf(command, sizeof command, commands[i], build_dir);
        CHECK(run(command, out, sizeof out, err, sizeof err) == 0, "%s", command);
        CHECK(*out && !*err, "%s wrote: %s", command, err);
        /* The shell that became a static program leaves its page, as do shells, which end by _exit(). A
         * shell's children make none. */
        CHECK(files_in_pages_dir() == (i < 2 ? 0 : (int)i - 1), "%s: %d files", command, files_in_pages_dir());
    }
}

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

static void the_library_needs_no_new_glibc_and_shows_only_openmp_names(void)
{
    char command[8400], line[512];
    snprintf(command, sizeof command, "objdump -T %s/libcoplace_preload.so", build_dir);
    FILE *f = popen(command, "r");
    CHECK(f);
    int versions = 0, shown = 0;
    while (fgets(line, sizeof line, f)) {
        int major, minor;
        const char *at = strstr(line, "GLIBC_");
        if (at && sscanf(at, "GLIBC_%d.%d", &major, &minor) == 2) {
            versions++;
            CHECK(major == 2 && minor <= 17, "%s", line);
        }
        if (strstr(line, ".text")) {
            shown++;
            CHECK(strstr(line, " GOMP_") || strstr(line, " omp_"), "%s", line);
        }
    }
    CHECK(pclose(f) == 0 && versions > 10 && shown > 20, "%d versions, %d names", versions, shown);
}

#define T(name) {#name, name}
static const struct {
    const char *name;
    void (*test)(void);
} tests[] = {
    T(the_page_describes_its_program),
    T(a_running_region_is_seen_from_outside_and_keeps_its_size),
    T(a_team_follows_the_target_at_the_next_region),
    T(a_team_is_never_larger_than_the_program_was_told),
    T(a_confined_program_still_sees_the_processors_it_started_with),
    T(a_thread_limit_of_the_user_holds),
    T(an_explicit_number_of_threads_makes_a_program_rigid),
    T(a_region_whose_if_clause_is_false_makes_no_program_rigid),
    T(turning_dyn_var_off_makes_a_program_rigid),
    T(turning_dyn_var_on_leaves_sizes_to_the_target_not_to_the_load),
    T(a_declared_program_is_rigid_from_its_first_region),
    T(the_default_page_gives_the_first_target_and_the_declaration),
    T(fortran_programs_are_heard_too),
    T(regions_started_in_halves_follow_the_target),
    T(regions_in_regions_stay_serial_even_when_the_outer_one_is_shrunk_to_one),
    T(nested_teams_together_keep_to_the_target),
    T(every_construct_computes_the_same_under_a_flickering_target),
    T(active_waiting_survives_a_flickering_target),
    T(a_flickering_target_does_not_remake_the_pool_each_time),
    T(surplus_threads_are_gone_after_shrinking),
    T(threads_that_spin_for_ever_are_ended_when_a_team_shrinks_to_one),
    T(several_masters_share_the_target),
    T(a_forks_child_has_its_own_page),
    T(exec_starts_the_page_anew_and_keeps_the_target),
    T(a_leftover_of_an_earlier_process_of_that_pid_is_replaced),
    T(without_a_directory_the_library_is_inert),
    T(a_directory_that_cannot_be_written_leaves_it_inert),
    T(programs_without_openmp_see_nothing_of_it),
    T(a_private_runtime_in_a_local_scope_is_found_and_resized),
    T(several_runtimes_in_one_process_are_not_mixed_up),
    T(an_unknown_runtime_is_left_alone),
    T(a_runtime_preloaded_before_the_library_is_called_unknown),
    T(active_waiting_on_an_old_libgomp_makes_a_program_rigid),
    T(without_any_runtime_a_region_runs_on_one_thread),
    T(a_program_under_address_sanitizer_runs_and_is_resized),
    T(the_library_needs_no_new_glibc_and_shows_only_openmp_names),
};

int main(int argc, char **argv)
{
    if (argc < 2 || !realpath(argv[1], build_dir)) {
        fprintf(stderr, "usage: check BUILD_DIR [WORD]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int passed = 0, bad = 0;
    for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (argc > 2 && !strstr(tests[i].name, argv[2]))
            continue;
        char name[128], command[4200];
        snprintf(name, sizeof name, "%s", tests[i].name);
        for (char *c = name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        strcpy(pages_dir, "/tmp/coplace-preload-XXXXXX");
        if (!mkdtemp(pages_dir))
            return 2;
        failed = NULL;
        tests[i].test();
        snprintf(command, sizeof command, "rm -rf '%s'", pages_dir);
        if (system(command) != 0)
            fprintf(stderr, "# left behind: %s\n", pages_dir);
        if (failed) {
            bad++;
            printf("not ok - %s\n# %s\n", name, failed);
        } else {
            passed++;
            printf("ok - %s\n", name);
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed\n", passed, bad);
    return bad != 0;
}
