// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a stream of random numbers for each thread; which one an element gets its number from depends on the team.
// Seen in: LAMMPS's random_thr, DavidSagan/Bmad issue 154, NanoComp/libctl pull 98, mlpack pull 4027.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 20000, MOST = 1024, LINE = 8 };
static uint64_t streams[MOST][LINE], x[N];

int main(int argc, char **argv)
{
    for (uint64_t t = 0; t < MOST; t++)
        streams[t][0] = word(t);
    for (long r = rounds_of(argc, argv, 8000); r > 0; r--) {
#pragma omp parallel
        {
            uint64_t *stream = streams[omp_get_thread_num() % MOST];
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++) {
                *stream = next(*stream, 1);
                x[i] += *stream;
            }
        }
    }
    return tell("random_streams", x, sizeof x);
}
