// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the thread number is asked by a function that is looked up at run time.
// Seen in: bindings and plugins that work with and without OpenMP (ctypes, Julia's threads, R packages).
// expect: gcc=rigid clang=rigid
#define _GNU_SOURCE
#include <dlfcn.h>

#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

static void turn(int (*me)(void), long r)
{
#pragma omp parallel for schedule(static)
    for (long i = 0; i < N; i++)
        x[i] = next(x[i], (uint64_t)r + (uint64_t)me());
}

int main(int argc, char **argv)
{
    int (*me)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    if (!me)
        return 2;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--)
        turn(me, r);
    return tell("looked_up", x, sizeof x);
}
