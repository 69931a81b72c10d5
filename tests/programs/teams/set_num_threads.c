// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the number of threads is set once by a call, then come pure loops.
// Seen in: mothur, vsearch-like tools and most programs with an option for threads.
// expect: gcc=resizable clang=rigid
#include "teams.h"

enum { N = 20000 };
static double x[N];

int main(int argc, char **argv)
{
    omp_set_num_threads(argc > 2 ? atoi(argv[2]) : omp_get_num_procs());
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = 0.9 * x[i] + 1.0 / (double)(i + r);
    }
    return tell("set_num_threads", x, sizeof x);
}
