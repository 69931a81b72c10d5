// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a plan made once says into how many parts work is cut; a loop over the parts calls through a pointer what
// does one. Any team does all parts.
// Seen in: FFTW's threads/openmp.c; also OpenBLAS issue 4770's callbacks, which wait for each other and are not pure.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];
static long round_now;

struct part {
    long from, to;
};

static void work(struct part part)
{
    for (long i = part.from; i < part.to; i++)
        x[i] = next(x[i], (uint64_t)round_now);
}

static void (*volatile chosen)(struct part) = work;

int main(int argc, char **argv)
{
    const int parts = omp_get_max_threads();
    for (round_now = rounds_of(argc, argv, 13300); round_now > 0; round_now--) {
        void (*const procedure)(struct part) = chosen;
#pragma omp parallel for
        for (int i = 0; i < parts; i++) {
            const struct part part = {(long)N * i / parts, (long)N * (i + 1) / parts};
            procedure(part);
        }
    }
    return tell("spawn_loop", x, sizeof x);
}
