// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the team packs panels together, each thread one; then everybody uses all panels, and waits by flags for those
// that are not packed yet. The team's real size is asked for within, so that it is right with any.
// Seen in: Eigen's Parallelizer.h and GeneralMatrixMatrix.h (sync and users of each thread's panel).
// expect: gcc=rigid clang=rigid
#include <sched.h>

#include "teams.h"

enum { N = 3000, MOST = 256, LINE = 16 };
static uint64_t panel[N], x[N];
static long packed[MOST][LINE];

int main(int argc, char **argv)
{
    const int threads = omp_get_max_threads() < MOST ? omp_get_max_threads() : MOST;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel num_threads(threads)
        {
            const long me = omp_get_thread_num(), team = omp_get_num_threads();
            for (long i = N * me / team; i < N * (me + 1) / team; i++)
                panel[i] = next((uint64_t)i, (uint64_t)r);
            __atomic_store_n(&packed[me][0], r, __ATOMIC_RELEASE);
            for (long other = 0; other < team; other++) {
                while (__atomic_load_n(&packed[other][0], __ATOMIC_ACQUIRE) != r)
                    sched_yield();
                for (long i = N * me / team; i < N * (me + 1) / team; i++)
                    for (long j = (N * other / team + 99) / 100 * 100; j < N * (other + 1) / team; j += 100)
                        x[i] += panel[j] ^ (uint64_t)i;
            }
        }
    }
    return tell("packed_panels", x, sizeof x);
}
