// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the program's loops are pure; a library that it opens keeps totals in thread-local data, for which the loops
// call it.
// Seen in: OpenBLAS's and MKL's buffers in thread-local data, random number libraries under pure callers.
// expect: gcc=rigid clang=rigid
// library: library_thread_data.part.c
#include <dlfcn.h>

#include "teams.h"

enum { N = 2000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.so", argv[0]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    uint64_t (*draw)(void) = library ? (uint64_t(*)(void))dlsym(library, "draw") : NULL;
    if (!draw) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    for (long r = rounds_of(argc, argv, 50000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], draw());
    }
    return tell("library_thread_data", x, sizeof x);
}
