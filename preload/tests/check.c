/* The tests of the preload library: each steers real programs from another process, as the node does.
 *   check BUILD_DIR [WORD]     only tests whose name contains WORD (blanks as underscores)
 *
 * EMULATOR and SYSROOT: the library and `app` are built for another processor, and the tests of sizes
 * and resizing run under that emulator (qemu-user, linked statically). The others start programs by
 * the shell or by exec, which needs the emulator to be known to the kernel. */
#define _GNU_SOURCE
#include "steer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, bad, left_out;

static void run_one(const struct test *test)
{
    char name[128], command[4200];
    snprintf(name, sizeof name, "%s", test->name);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    strcpy(pages_dir, "/tmp/coplace-preload-XXXXXX");
    if (!mkdtemp(pages_dir)) {
        perror("check: cannot make a directory in /tmp");
        exit(2);
    }
    failed = skipped = NULL;
    test->run();
    end_all_programs();
    snprintf(command, sizeof command, "rm -rf '%s'", pages_dir);
    if (system(command) != 0)
        fprintf(stderr, "# left behind: %s\n", pages_dir);
    if (failed) {
        bad++;
        printf("not ok - %s\n# %s\n", name, failed);
    } else if (skipped) {
        left_out++;
        printf("SKIPPED %s: %s\n", name, skipped);
    } else {
        passed++;
        printf("ok - %s\n", name);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct test *const groups[] = {process_tests, sizing_tests,   resizing_tests,  runtimes_tests,
                                        llvm_tests,    tolerant_tests, sanitizer_tests, table_tests, binding_tests};
    if (argc < 2 || !realpath(argv[1], build_dir)) {
        fprintf(stderr, "usage: check BUILD_DIR [WORD]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    const char *emulator = getenv("EMULATOR");
    for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const struct test *test = groups[i]; test->name; test++)
            if ((argc < 3 || strstr(test->name, argv[2])) &&
                (!emulator || groups[i] == sizing_tests || groups[i] == resizing_tests))
                run_one(test);
    printf("%d passed, %d failed, %d skipped\n", passed, bad, left_out);
    return bad != 0 || passed == 0;
}
