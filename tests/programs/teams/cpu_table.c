// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: totals in a table by the CPU that a thread runs on at the moment.
// Seen in: NUMA-aware allocators and counters by sched_getcpu() (Peloton-like), restartable sequences.
// expect: gcc=rigid clang=rigid
#include <sched.h>

#include "teams.h"

int sched_getcpu(void);

enum { N = 60000, CPUS = 1024 };
static uint64_t totals[CPUS];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
#pragma omp parallel
        {
            const int cpu = sched_getcpu();
            uint64_t sum = 0;
#pragma omp for schedule(static) nowait
            for (long i = 0; i < N; i++)
                sum += next((uint64_t)i, (uint64_t)r);
#pragma omp atomic
            totals[(cpu < 0 ? 0 : cpu) % CPUS] += sum;
        }
    }
    uint64_t all = 0;
    for (int c = 0; c < CPUS; c++)
        all += totals[c];
    return tell("cpu_table", &all, sizeof all);
}
