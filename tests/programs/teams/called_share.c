// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the region only calls a function, and that one asks for its thread's number and takes its share of a number
// that the program keeps.
// Seen in: bwa-like kt_for on OpenMP, LAMMPS's pair styles, orphaned regions in Fortran codes.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];
static long threads;

static __attribute__((noinline)) void share(long r)
{
    const long me = omp_get_thread_num();
    for (long i = N * me / threads; i < N * (me + 1) / threads && i < N; i++)
        x[i] = next(x[i], (uint64_t)r);
}

int main(int argc, char **argv)
{
    threads = omp_get_max_threads();
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        share(r);
    }
    return tell("called_share", x, sizeof x);
}
