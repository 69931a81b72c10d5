// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a barrier of the program's own, for as many threads as there were at the start; they wait for ever for one
// that is not there. Here they give up after some seconds of waiting.
// Seen in: flame/blis issues 267 and 604 and pull 269, Kokkos's rendezvous between threads.
// expect: gcc=rigid clang=rigid
#include <time.h>

#include "teams.h"

enum { N = 12000 };
static uint64_t x[N], y[N];
static int threads, arrived, phase;

static void meet(void)
{
    const int before = __atomic_load_n(&phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == threads) {
        __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&phase, before + 1, __ATOMIC_RELEASE);
        return;
    }
    for (long turns = 0; __atomic_load_n(&phase, __ATOMIC_ACQUIRE) == before; turns++) {
        if (turns < 10000)
            continue;
        // A machine with few CPUs for many threads is not to wait for long.
        const struct timespec little = {0, 200000};
        nanosleep(&little, NULL);
        if (turns > 110000) {
            fprintf(stderr, "own_barrier: waited for a thread that is not there\n");
            exit(3);
        }
    }
}

int main(int argc, char **argv)
{
    threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            const long from = N * me / threads, to = N * (me + 1) / threads;
            for (long i = from; i < to; i++)
                y[i] = next(x[i], (uint64_t)r);
            meet();
            for (long i = from; i < to; i++)
                x[i] = y[N - 1 - i] + y[i];
        }
    }
    return tell("own_barrier", x, sizeof x);
}
