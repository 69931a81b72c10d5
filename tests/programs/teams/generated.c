// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a region's function is made while the program runs, in memory that no file backs. It comes from a compiler
// that took the number of threads for a constant.
// Seen in: Numba's parallel loops, TVM's and Julia-like compilers' regions.
// expect: gcc=rigid clang=rigid
#include <sys/mman.h>

#include "teams.h"

// What compilers call for a region; both runtimes have it.
void GOMP_parallel(void (*region)(void *), void *data, unsigned threads, unsigned flags);

enum { N = 60000 };
static uint64_t x[N];
static long threads, round_now;

static void share(void *data)
{
    uint64_t *of = (uint64_t *)data;
    const long me = omp_get_thread_num();
    for (long i = N * me / threads; i < N * (me + 1) / threads && i < N; i++)
        of[i] = next(of[i], (uint64_t)round_now);
}

// Code that jumps to another function.
static void (*generated(void (*to)(void *)))(void *)
{
#ifdef __x86_64__
    unsigned char code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; // mov $to, %rax; jmp *%rax
    memcpy(code + 2, &to, sizeof to);
#else
    uint32_t code[4] = {0x58000050, 0xd61f0200, 0, 0}; // ldr x16, 8; br x16
    memcpy(code + 2, &to, sizeof to);
#endif
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    memcpy(memory, code, sizeof code);
    if (mprotect(memory, 4096, PROT_READ | PROT_EXEC))
        return NULL;
    __builtin___clear_cache((char *)memory, (char *)memory + sizeof code);
    return (void (*)(void *))memory;
}

int main(int argc, char **argv)
{
    threads = omp_get_max_threads();
    void (*region)(void *) = generated(share);
    if (!region)
        return 2;
    for (round_now = rounds_of(argc, argv, 13300); round_now > 0; round_now--)
        GOMP_parallel(region, x, 0, 0);
    return tell("generated", x, sizeof x);
}
