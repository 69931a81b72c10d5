// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A neighbour that can be resized: pure loops for some milliseconds.
//   resizable MILLISECONDS
#include "../teams.h"

enum { N = 20000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const double until = omp_get_wtime() + (argc > 1 ? atof(argv[1]) : 50) / 1000;
    for (uint64_t r = 0; omp_get_wtime() < until; r++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], r);
    }
    return 0;
}
