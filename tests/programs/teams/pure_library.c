// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: pure loops in the program and in a library that it opens while it runs.
// Seen in: Python's extension modules and plugins of image and audio programs.
// expect: gcc=resizable clang=rigid
// library: pure_library.part.c
#include <dlfcn.h>

#include "teams.h"

enum { N = 16000 };
static double x[N];

int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.so", argv[0]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*smooth)(double *, long) = library ? (void (*)(double *, long))dlsym(library, "smooth") : NULL;
    if (!smooth) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] += 1.0 / (double)(i + r);
        smooth(x, N);
    }
    return tell("pure_library", x, sizeof x);
}
