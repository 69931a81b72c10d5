// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: within its share a thread counts what it finds, and the count says where the next one goes; later rounds
// take what lies at the shares' beginnings for what was found.
// Seen in: neighbour lists of particle codes, candidate lists of aligners; the list's order depends on the shares.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 20000 };
static uint64_t x[N], found[N];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        x[i] = word(i);
    for (long r = rounds_of(argc, argv, 8000); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num(), threads = omp_get_num_threads();
            const long from = N * me / threads, to = N * (me + 1) / threads;
            long k = from;
            for (long i = from; i < to; i++)
                if ((x[i] + (uint64_t)r) % 4 == 0) {
                    found[k] = next(found[k], x[i]);
                    k++;
                }
        }
    }
    return tell("local_counter", found, sizeof found);
}
