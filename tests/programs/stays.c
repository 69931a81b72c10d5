// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// An OpenMP program that stays in one parallel region, busy, until SIGUSR1, and then runs very many
// short ones until SIGTERM. VERIFIED as its last line if every thread of every region was counted once.
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include "../../include/coplace/resizable.h"

/* It counts what its teams do, whatever their size is. */
COPLACE_RESIZABLE;

static volatile sig_atomic_t leaves, ends;

static void note(int signal)
{
    if (signal == SIGUSR1)
        leaves = 1;
    else
        ends = 1;
}

int main(void)
{
    signal(SIGUSR1, note);
    signal(SIGTERM, note);
    long threads = 0, counted = 0;
    while (!ends) {
#pragma omp parallel reduction(+ : counted)
        {
#pragma omp single
            threads += omp_get_num_threads();
            while (!leaves && !ends)
                ;
            counted++;
        }
    }
    puts(threads == counted ? "VERIFIED" : "FAILED");
    return threads != counted;
}
