// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a scratch buffer for each thread that there may be; after a bare region all of them are read, also those
// that no thread filled this time.
// Seen in: GraphicsMagick's and ImageMagick's pixel thread sets, finufft's subproblem grids, LAMMPS's ThrData.
// expect: gcc=rigid clang=rigid
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 20000, BINS = 64 };

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    uint64_t(*buffers)[BINS] = (uint64_t(*)[BINS])calloc((size_t)threads, sizeof *buffers);
    uint64_t totals[BINS] = {0};
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
            uint64_t *mine = buffers[omp_get_thread_num()];
            memset(mine, 0, sizeof *buffers);
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                mine[i % BINS] += next((uint64_t)i, (uint64_t)r);
        }
        for (long t = 0; t < threads; t++)
            for (int b = 0; b < BINS; b++)
                totals[b] += buffers[t][b];
    }
    free(buffers);
    return tell("buffer_per_thread", totals, sizeof totals);
}
