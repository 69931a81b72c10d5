// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a bare region whose threads take from N*me/n up to N*(me+1)/n, by the team that they are in.
// Seen in: llnl/LULESH, amgcl and many tutorials' block distribution; right with any team.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), team = omp_get_num_threads();
            const long from = N * me / team, to = N * (me + 1) / team;
            for (long i = from; i < to; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("own_bounds", x, sizeof x);
}
