// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a library that is opened after the first region has numbers near zero flushed, in the thread that opens it.
// Seen in: gevent issue 1820 and others: libraries built with -ffast-math, whose start-up code does that.
// expect: gcc=rigid clang=rigid
// library: late_flush.part.c
#include <dlfcn.h>

#include "teams.h"

enum { N = 60000 };
static double x[N];

int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.so", argv[0]);
    for (long r = 0, rounds = rounds_of(argc, argv, 8000); r < rounds; r++) {
        if (r == 1 && !dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = x[i] + (i % 256 == 7 ? 1e-315 : 1e-3) * (double)(i + r % 7 + 1);
    }
    return tell("late_flush", x, sizeof x);
}
