// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the program's loops are pure; a library that it opens asked for the most threads when it was loaded, and
// cuts its regions by that.
// Seen in: OpenBLAS's blas_cpu_number, finufft pull 372 (the first plan's number is kept), FFTW's plans.
// expect: gcc=rigid clang=rigid
// library: library_kept_team.part.c
#include <dlfcn.h>

#include "teams.h"

enum { N = 48000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.so", argv[0]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*turn)(uint64_t *, long) = library ? (void (*)(uint64_t *, long))dlsym(library, "turn") : NULL;
    if (!turn) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
        turn(x, N);
    }
    return tell("library_kept_team", x, sizeof x);
}
