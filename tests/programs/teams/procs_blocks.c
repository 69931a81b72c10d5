// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the machine's number of CPUs says how many blocks there are; the runtime hands them out.
// Seen in: openvinotoolkit-like thread helpers, primecount's chunks.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const int blocks = 8 * omp_get_num_procs();
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
#pragma omp parallel for schedule(dynamic)
        for (int b = 0; b < blocks; b++)
            for (long i = (long)N * b / blocks; i < (long)N * (b + 1) / blocks; i++)
                x[i] = next(x[i], (uint64_t)r);
    }
    return tell("procs_blocks", x, sizeof x);
}
