// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: in each region a thread draws a ticket from a counter, and the ticket says which share is its.
// Seen in: STAR's chunk numbers, thread pools on top of OpenMP; OpenMPI-like "rank within the team".
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const long threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 16600); r > 0; r--) {
        long tickets = 0;
#pragma omp parallel
        {
            long mine;
#pragma omp atomic capture
            mine = tickets++;
            for (long i = N * mine / threads; i < N * (mine + 1) / threads && i < N; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("ticket", x, sizeof x);
}
