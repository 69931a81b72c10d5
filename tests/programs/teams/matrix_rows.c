// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a static loop over the rows of a matrix; each row is summed by itself, in an inner loop.
// Seen in: sparse and dense matrix-vector products (NPB CG, hypre, amgcl).
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 160 };
static double a[N][N], x[N], y[N];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++) {
        x[i] = unit(i);
        for (uint64_t j = 0; j < N; j++)
            a[i][j] = (unit(N + i * N + j) - 0.5) * (2.0 / N);
    }
    for (long r = rounds_of(argc, argv, 30000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++) {
            double sum = 0.01;
            for (long j = 0; j < N; j++)
                sum += a[i][j] * x[j];
            y[i] = sum;
        }
        for (long i = 0; i < N; i++)
            x[i] = 0.5 * x[i] + y[i];
    }
    return tell("matrix_rows", x, sizeof x);
}
