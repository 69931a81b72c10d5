// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a thread is known by where its stack lies, in steps of a mebibyte; its totals lie in a table by that.
// Seen in: conservative collectors and old schedulers that find the current thread by its stack pointer.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000, MOST = 4096 };
static uintptr_t stacks[MOST];
static uint64_t totals[MOST];
static int count;

static __attribute__((noinline)) int slot(void)
{
    volatile char here = 0;
    const uintptr_t stack = (uintptr_t)&here >> 20;
    int found = -1;
#pragma omp critical
    {
        for (int t = 0; t < count && found < 0; t++)
            if (stacks[t] == stack)
                found = t;
        if (found < 0 && count < MOST)
            stacks[found = count++] = stack;
    }
    return found;
}

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
#pragma omp parallel
        {
            const long me = slot();
            uint64_t sum = 0;
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < N; i++)
                sum += next((uint64_t)i, (uint64_t)r);
            totals[me] += sum;
        }
    }
    uint64_t all = 0;
    for (int t = 0; t < count; t++)
        all += totals[t];
    return tell("stack_identity", &all, sizeof all);
}
