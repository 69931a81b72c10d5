// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the program's own option says how many threads, and each pure loop asks for them by name.
// Seen in: microsoft/LightGBM, samtools-like -t options; the work is shared by the loop, not by the number.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const int threads = argc > 2 ? atoi(argv[2]) : omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("num_threads", x, sizeof x);
}
