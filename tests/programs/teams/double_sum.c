// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a sum of doubles over all threads, which rounds as the team's shares fall. Two threads, whose order does
// not matter, so that alone it is the same every time.
// Seen in: hypre-space/hypre issue 467, bertiniteam/b2 issue 378, mfem pull 1878, FFTW/fftw3 issue 303.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60000 };
static double x[N], y[N];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        x[i] = unit(i) - 0.5, y[i] = unit(N + i);
    omp_set_num_threads(2);
    double all = 0;
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
        double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (long i = 0; i < N; i++)
            sum += x[i] * y[i];
        all = 0.5 * all + sum;
        y[r % N] += 1e-3;
    }
    return tell("double_sum", &all, sizeof all);
}
