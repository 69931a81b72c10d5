// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// An OpenMP program that works a little and rests, so that many of its threads fit on few real
// CPUs, with memory of its own that all of them touch:
//   breathe REST_MS MIB
// With no rest at all its threads use all the CPU time that they get.
// It runs until SIGTERM, then checks its memory: VERIFIED as its last line, or FAILED.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "../../include/coplace/resizable.h"

/* It counts what its teams do, whatever their size is. */
COPLACE_RESIZABLE;

static volatile sig_atomic_t ends;

static void end(int signal)
{
    (void)signal;
    ends = 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: breathe REST_MS MIB\n");
        return 2;
    }
    const long rest_ms = atol(argv[1]), n = atol(argv[2]) * (1 << 20) / 64;
    const struct timespec rest = {rest_ms / 1000, rest_ms % 1000 * 1000000};
    // A counter in each line of 64 bytes.
    uint64_t(*lines)[8] = calloc((size_t)n, 64);
    if (n < 1 || !lines) {
        fprintf(stderr, "breathe: no %s MiB to be had\n", argv[2]);
        return 2;
    }
    signal(SIGTERM, end);
    uint64_t breaths = 0;
    for (; !ends; breaths++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            lines[i][0]++;
        if (rest_ms)
            nanosleep(&rest, NULL);
    }
    for (long i = 0; i < n; i++)
        if (lines[i][0] != breaths) {
            printf("FAILED: line %ld was counted %llu times, not %llu\n", i, (unsigned long long)lines[i][0],
                   (unsigned long long)breaths);
            return 1;
        }
    printf("VERIFIED\n");
    return 0;
}
