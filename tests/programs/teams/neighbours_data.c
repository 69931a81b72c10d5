// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: in a region each thread leaves something for the next one round the ring, and after a barrier takes what the
// one before left it.
// Seen in: domain decompositions within a node (OpenSBLI-like halo exchange between threads), ring reductions.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 24000, MOST = 1024, LINE = 8 };
static uint64_t x[N], halo[MOST][LINE];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), team = omp_get_num_threads();
            const long from = N * me / team, to = N * (me + 1) / team;
            halo[me % MOST][0] = x[to - 1];
#pragma omp barrier
            uint64_t before = halo[(me + team - 1) % team % MOST][0];
            for (long i = from; i < to; i++)
                before = x[i] = next(x[i] + before, (uint64_t)r);
        }
    }
    return tell("neighbours_data", x, sizeof x);
}
