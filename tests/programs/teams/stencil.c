// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a stencil between two grids that change places after each step.
// Seen in: heat and wave equation codes; YASK's and Devito's generated loops.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 128 };
static double grids[2][N][N];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        for (uint64_t j = 0; j < N; j++)
            grids[0][i][j] = grids[1][i][j] = unit(i * N + j);
    const long rounds = rounds_of(argc, argv, 40000);
    for (long r = 0; r < rounds; r++) {
        double(*from)[N] = grids[r % 2], (*to)[N] = grids[1 - r % 2];
#pragma omp parallel for schedule(static)
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                to[i][j] = 0.2 * (from[i][j] + from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]);
    }
    return tell("stencil", grids, sizeof grids);
}
