// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a first region counts what each thread will keep; many later ones write what is kept, each thread from the
// place that the counts gave it.
// Seen in: ginkgo pull 703 (prefix sums by thread), sparse matrix products' symbolic and numeric phase.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 20000, MOST = 1024 };
static uint64_t x[N], kept[N];
static long starts[MOST + 1];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        x[i] = word(i);
    int team = 1;
#pragma omp parallel
    {
        const long me = omp_get_thread_num(), threads = omp_get_num_threads();
        long count = 0;
        for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
            count += x[i] % 3 == 0;
        starts[me % MOST + 1] = count;
#pragma omp master
        team = (int)threads;
    }
    for (int t = 0; t < team; t++)
        starts[t + 1] += starts[t];
    for (long r = rounds_of(argc, argv, 8000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), threads = omp_get_num_threads();
            long at = starts[me % MOST];
            for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
                if (x[i] % 3 == 0 && at < N) {
                    kept[at] = next(kept[at], x[i] + (uint64_t)r);
                    at++;
                }
        }
    }
    return tell("compaction", kept, sizeof kept);
}
