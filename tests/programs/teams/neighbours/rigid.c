// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A neighbour that cannot be resized: it wants the team that it was told of, for some milliseconds.
//   rigid MILLISECONDS
#include "../teams.h"

enum { N = 20000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const double until = omp_get_wtime() + (argc > 1 ? atof(argv[1]) : 50) / 1000;
    const long threads = omp_get_max_threads();
    omp_set_dynamic(0);
    for (uint64_t r = 0; omp_get_wtime() < until; r++) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
                x[i] = next(x[i], r);
        }
    }
    return 0;
}
