// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One thread that computes for a given time and reports how much it got done: what an unmanaged
// neighbour loses beside other programs. The only program here that is told a time; SIGTERM and
// SIGINT end it early with its report. A step is one link of an affine chain, each waiting for the
// one before, in registers: its speed depends on the CPU time it gets and on nothing else.
// `iterations` and `result` are the steps done; verified exactly with the closed form of the chain.
// --size: a class is a time of n milliseconds.
#include "common/affine.h"
#include <signal.h>

enum { STEPS_BETWEEN_CLOCKS = 16384 }; // about 30 µs: fine beside any slice, and the clock costs 0.1%

static const struct app_spec spec = {
    .name = "burn", .what = "burns one CPU for a given time and counts the work", .n_means = "milliseconds",
    .n_min = 1, .n_max = 1000000000, .takes_seconds = true,
    .classes = {{'T', 100, 0}, {'S', 1000, 0}, {'M', 4000, 0}, {'L', 16000, 0}, {'X', 120000, 0}},
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    const double seconds = app.seconds > 0 ? app.seconds : 1e-3 * (double)app.n;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);

    uint64_t x = app_mix(1), steps = 0;
    app_start();
    do {
        for (int i = 0; i < STEPS_BETWEEN_CLOCKS; i++) {
            x = affine_a * x + affine_c;
            __asm__ volatile("" : "+r"(x)); // the compiler must not join links
        }
        steps += STEPS_BETWEEN_CLOCKS;
        app_stop();
        if (app.corrupt && !app.corrupted && app.stopped - app.started > seconds / 2) {
            app.corrupted = true;
            x ^= 1;
        }
    } while (app.stopped - app.started < seconds && !stop);

    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    uint64_t a, c;
    affine_power(steps, &a, &c);
    app_check(x == a * app_mix(1) + c, "the chain is at %llx after %llu steps, not %llx", (unsigned long long)x,
              (unsigned long long)steps, (unsigned long long)(a * app_mix(1) + c));
    app.iterations = (long)steps;
    app.threads_max = app.threads_min = 1;
    if (!app.json)
        printf("burn: %llu steps in %.3f s, %.3f s of CPU time\n", (unsigned long long)steps,
               app.stopped - app.started, (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec);
    return app_finish("%llu", (unsigned long long)steps);
}
