// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: two loops made one, so that few rows give enough iterations; each thread starts amid a row.
// Seen in: LAMMPS's and WRF-like grids, oneDNN's loops over batch and channel. Pure, but the numbers go through
// divisions that a reader of the machine code need not understand.
// expect: gcc=rigid clang=resizable
#include "teams.h"

enum { ROWS = 24, N = 800 };
static uint64_t x[ROWS][N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 30000); r > 0; r--) {
#pragma omp parallel for collapse(2) schedule(static)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < N; j++)
                x[i][j] = next(x[i][j], (uint64_t)(i * 3 + j));
    }
    return tell("collapse", x, sizeof x);
}
