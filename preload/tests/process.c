/* The page in the life of a process, and programs that have no need of it. */
#define _GNU_SOURCE
#include "steer.h"

#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <time.h>
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
    CHECK(SOON(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED), "before the program has called anything");
    CHECK(p.page->max_team == 4, "max_team %u", p.page->max_team);
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

static void its_times_are_those_of_the_monotonic_clock(void)
{
    struct program p = START("app", "OMP_NUM_THREADS=1");
    const struct coplace_lane *lane = &p.page->lane[0];
    bool near_end = false;
    /* On a busy machine it may be kept from running at the end, or all the time. */
    for (int tries = 0; tries < 50 && !near_end; tries++) {
        const uint64_t in_before = lane->size[0].ns, regions = lane->regions, before = monotonic_ns();
        ask_number(&p, "births 400");
        const uint64_t after = monotonic_ns(), slack = (after - p.page->loaded_ns) / 500; /* 0.2% since load */
        if (lane->regions == regions)
            continue;
        const uint64_t in = lane->size[0].ns - in_before;
        CHECK(lane->entered_ns + slack > before && lane->left_ns < after + slack);
        CHECK(in < after - before + 10000000, "%lu ns in regions", (unsigned long)in);
        near_end = lane->left_ns > before + 350000000 && in > 20000000;
    }
    CHECK(near_end, "no last exit was near the end");
    CHECK(finish(&p) == 0);
}

static void the_state_tells_of_binding_and_of_sizing_by_load(void)
{
    struct program p = START("app", "OMP_PROC_BIND=true", "OMP_DYNAMIC=true");
    CHECK(SOON(p.page->state & COPLACE_STATE_RUNTIME_INITIALISED));
    CHECK(p.page->state & COPLACE_STATE_BINDS_THREADS && p.page->state & COPLACE_STATE_RUNTIME_DYNAMIC);
    CHECK(finish(&p) == 0);
    p = START("app");
    CHECK(!(p.page->state & (COPLACE_STATE_BINDS_THREADS | COPLACE_STATE_RUNTIME_DYNAMIC)));
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
    CHECK(page->state & COPLACE_STATE_RUNTIME_INITIALISED && page->max_team == 4);
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
    const char *const ways[] = {"COPLACE_PAGES=/nonexistent/pages", "COPLACE_PAGES=/proc", "COPLACE_PAGES=", "COPLACE_PAGES=.", file};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
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
        /* One file, `cpus`, is there always. The shell that became a static program leaves its page, as
         * do shells, which end by _exit(). A shell's children make none. */
        CHECK(files_in_pages_dir() == (i < 2 ? 1 : (int)i), "%s: %d files", command, files_in_pages_dir());
    }
}

static void what_a_program_executes_is_under_the_library_unless_asked_not_to(void)
{
    char out[4096], err[4096], command[8400], ours[8400];
    const char *const script = "echo ${LD_PRELOAD-none} ${COPLACE_PAGES+pages}; exec env";
    snprintf(ours, sizeof ours, "%s/libcoplace_preload.so", build_dir);
    snprintf(command, sizeof command, "sh -c '%s'", script);
    CHECK(run(command, out, sizeof out, err, sizeof err) == 0 && !*err);
    CHECK(strstr(out, ours) == out && strstr(out, " pages") && strstr(out, "LD_PRELOAD="), "%s", out);
    snprintf(command, sizeof command, "COPLACE_INHERIT=0 sh -c '%s'", script);
    CHECK(run(command, out, sizeof out, err, sizeof err) == 0 && !*err);
    CHECK(strstr(out, "none pages\n") == out && !strstr(out, "COPLACE_INHERIT") && !strstr(out, "LD_PRELOAD="),
          "%s", out);
    snprintf(command, sizeof command, "LD_PRELOAD=\"libm.so.6 $LD_PRELOAD:libdl.so.2\" COPLACE_INHERIT=0 sh -c '%s'",
             script);
    CHECK(run(command, out, sizeof out, err, sizeof err) == 0 && !*err);
    CHECK(strstr(out, "libm.so.6:libdl.so.2 pages\n") == out, "the user's own stay: %s", out);
}

static void a_program_on_musl_runs_as_if_the_library_were_not_there(void)
{
    char out[4096], err[4096], command[8400];
    snprintf(command, sizeof command, "%s/plain_musl", build_dir);
    if (access(command, X_OK) != 0) {
        skipped = "there is no musl-gcc (apt-get install musl-tools)";
        return;
    }
    CHECK(run(command, out, sizeof out, err, sizeof err) == 0 && !strcmp(out, "plain\n") && !*err, "%s", err);
    CHECK(files_in_pages_dir() == 2, "`cpus` and the page of the shell that became it");
}

static void the_library_needs_no_new_glibc_and_shows_only_names_that_it_must(void)
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
            CHECK(strstr(line, " GOMP_") || strstr(line, " omp_") || strstr(line, " __kmpc_") ||
                      strstr(line, " pthread_getaffinity_np") || strstr(line, " sched_setaffinity") ||
                      strstr(line, " pthread_setaffinity_np") || strstr(line, " sched_getaffinity") ||
                      strstr(line, " pthread_attr_setaffinity_np"),
                  "%s", line);
        }
    }
    CHECK(pclose(f) == 0 && versions > 10 && shown > 20, "%d versions, %d names", versions, shown);
}

const struct test process_tests[] = {
    TEST(the_page_describes_its_program),
    TEST(its_times_are_those_of_the_monotonic_clock),
    TEST(the_state_tells_of_binding_and_of_sizing_by_load),
    TEST(a_forks_child_has_its_own_page),
    TEST(exec_starts_the_page_anew_and_keeps_the_target),
    TEST(a_leftover_of_an_earlier_process_of_that_pid_is_replaced),
    TEST(without_a_directory_the_library_is_inert),
    TEST(a_directory_that_cannot_be_written_leaves_it_inert),
    TEST(programs_without_openmp_see_nothing_of_it),
    TEST(what_a_program_executes_is_under_the_library_unless_asked_not_to),
    TEST(a_program_on_musl_runs_as_if_the_library_were_not_there),
    TEST(the_library_needs_no_new_glibc_and_shows_only_names_that_it_must),
    {NULL, NULL},
};
