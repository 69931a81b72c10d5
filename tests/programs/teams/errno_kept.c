// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: errno is cleared before a loop and asked in its iterations, each of which sees what an earlier one of the
// same thread left.
// Seen in: parsers of numbers (strtod, strtol) that were made parallel later.
// expect: gcc=rigid clang=rigid
#include <errno.h>

#include "teams.h"

enum { N = 6000 };
static char text[N][16];
static double x[N];
static unsigned char bad[N];

int main(int argc, char **argv)
{
    for (long i = 0; i < N; i++)
        snprintf(text[i], sizeof text[i], i % 1000 == 700 ? "1e999" : "%ld.5", i);
    uint64_t hash = 0;
    for (long r = rounds_of(argc, argv, 900); r > 0; r--) {
#pragma omp parallel
        {
            errno = 0;
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++) {
                x[i] = strtod(text[i], NULL);
                bad[i] = errno == ERANGE;
            }
        }
        for (long i = 0; i < N; i++)
            hash = next(hash, bad[i]);
    }
    return tell("errno_kept", &hash, sizeof hash) || tell("numbers", x, sizeof x);
}
