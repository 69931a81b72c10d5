// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A preload library for the tests: gives each parallel region that does not ask for a number of
// threads another team size than the one before, from 1 to RESIZE_MAX. The results of a malleable
// program must not notice. It knows no more of the runtime than the two entries that the programs
// here use.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static unsigned next_size(unsigned asked)
{
    static unsigned most, random = 1;
    if (asked)
        return asked; // a num_threads clause
    if (!most) {
        const char *text = getenv("RESIZE_MAX");
        most = text && atoi(text) > 0 ? (unsigned)atoi(text) : 1;
    }
    random = random * 1103515245u + 12345u; // no short period that a program's loop could fall in with
    return (random >> 16) % most + 1;
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags)
{
    static void (*real)(void (*)(void *), void *, unsigned, unsigned);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "GOMP_parallel");
    real(body, data, next_size(threads), flags);
}

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*body)(void *), void *data, unsigned threads, long start, long end,
                                             long step, long chunk, unsigned flags)
{
    static void (*real)(void (*)(void *), void *, unsigned, long, long, long, long, unsigned);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "GOMP_parallel_loop_nonmonotonic_dynamic");
    real(body, data, next_size(threads), start, end, step, chunk, flags);
}
