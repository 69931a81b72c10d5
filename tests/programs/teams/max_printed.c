// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the most threads are asked for to tell the user, and for nothing else; so is the time.
// Seen in: BlueBrain/CoreNeuron pull 293, celeritas pull 2413: numbers of threads in the program's greeting.
// expect: gcc=resizable clang=resizable
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    fprintf(stderr, "up to %d threads on %d CPUs\n", omp_get_max_threads(), omp_get_num_procs());
    const double began = omp_get_wtime();
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    fprintf(stderr, "%.3f s\n", omp_get_wtime() - began);
    return tell("max_printed", x, sizeof x);
}
