// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One gang that takes its turn: a thread for each CPU that notes when it ran, by looking at the
// clock all the time. A gap of more than GAP_NS between two looks means that it did not run. What
// it notes is compared with what another gang notes, and with when the scheduler wrote.
//
//   gang SECONDS FILE CPU...
//
// Writes records of {u64 thread, u64 cpu, u64 from_ns, u64 to_ns} (CLOCK_MONOTONIC) into FILE.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GAP_NS = 30000, MOST = 1 << 18 };

struct interval {
    uint64_t thread, cpu, from_ns, to_ns;
};

struct member {
    pthread_t thread;
    uint64_t number, until_ns;
    int cpu;
    struct interval *intervals;
    long count;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *look(void *data)
{
    struct member *m = data;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(m->cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        return "cannot be pinned";
    // Pinned, and yet asked each time: whoever places the program may widen its masks again.
    uint64_t from = now_ns(), last = from;
    int at = sched_getcpu();
    while (last < m->until_ns && m->count < MOST) {
        uint64_t now = now_ns();
        int cpu = sched_getcpu();
        if (now - last > GAP_NS || cpu != at) {
            m->intervals[m->count++] = (struct interval){m->number, (uint64_t)at, from, last};
            from = now;
            at = cpu;
        }
        last = now;
    }
    if (m->count < MOST)
        m->intervals[m->count++] = (struct interval){m->number, (uint64_t)at, from, last};
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0;
    int width = argc - 3;
    if (seconds <= 0 || width < 1) {
        fprintf(stderr, "usage: gang SECONDS FILE CPU...\n");
        return 2;
    }
    struct member *members = calloc((size_t)width, sizeof *members);
    uint64_t until_ns = now_ns() + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < width; i++) {
        members[i] = (struct member){.number = (uint64_t)i, .cpu = atoi(argv[3 + i]), .until_ns = until_ns};
        members[i].intervals = malloc(MOST * sizeof *members[i].intervals);
        // Touched now, because a page fault looks like a gap.
        memset(members[i].intervals, 0, MOST * sizeof *members[i].intervals);
        if (pthread_create(&members[i].thread, NULL, look, &members[i])) {
            printf("FAILED: no thread\n");
            return 1;
        }
    }
    FILE *file = fopen(argv[2], "wb");
    int bad = file == NULL;
    for (int i = 0; i < width; i++) {
        void *why;
        pthread_join(members[i].thread, &why);
        bad |= why != NULL;
        if (file)
            bad |= fwrite(members[i].intervals, sizeof *members[i].intervals, (size_t)members[i].count, file) !=
                   (size_t)members[i].count;
    }
    if (file)
        bad |= fclose(file) != 0;
    puts(bad ? "FAILED: its log could not be taken or written" : "VERIFIED");
    return bad;
}
