// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a thread is known by its pthread_self(); who is met for the first time gets the next slot, and the slot is
// its share. A thread that was made anew is a stranger.
// Seen in: loggers, profilers and allocators that number threads themselves; TAU-like measurement.
// expect: gcc=rigid clang=rigid
#include <pthread.h>

#include "teams.h"

enum { N = 60000, MOST = 4096 };
static uint64_t x[N];
static pthread_t known[MOST];
static int count;

static int slot(void)
{
    const pthread_t self = pthread_self();
    int found = -1;
#pragma omp critical
    {
        for (int t = 0; t < count && found < 0; t++)
            if (pthread_equal(known[t], self))
                found = t;
        if (found < 0 && count < MOST)
            known[found = count++] = self;
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
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("pthread_identity", x, sizeof x);
}
