// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the number of threads is written into a file at the start, read back for each phase, and work cut by it.
// Seen in: trinityrnaseq/trinityrnaseq issue 9 (as many files as threads were expected); restart files of simulations.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 20000, ROOM = 16 };
static uint64_t x[ROOM * N];

int main(int argc, char **argv)
{
    FILE *file = tmpfile();
    if (!file)
        return 2;
    fprintf(file, "threads %d\n", omp_get_max_threads());
    const long rounds = rounds_of(argc, argv, 10000);
    long threads = 1;
    for (long r = 0; r < rounds; r++) {
        if (r % 1000 == 0) {
            rewind(file);
            if (fscanf(file, "threads %ld", &threads) != 1)
                return 2;
        }
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads && i < ROOM * N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    fclose(file);
    return tell("threads_in_file", x, sizeof x);
}
