// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The library of library_kept_team.c.
#include <omp.h>
#include <stdint.h>

void turn(uint64_t *x, long n);

static int threads;

__attribute__((constructor)) static void look(void) { threads = omp_get_max_threads(); }

void turn(uint64_t *x, long n)
{
#pragma omp parallel
    {
        const long me = omp_get_thread_num();
        for (long i = n * me / threads; i < n * (me + 1) / threads && i < n; i++)
            x[i] = x[i] << 7 | x[i] >> 57;
    }
}
