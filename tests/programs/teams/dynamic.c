// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a loop that the runtime hands out in chunks, as its iterations differ in length.
// Seen in: tile renderers (POV-Ray-like), OpenMS's per-spectrum loops, GraphicsMagick's rows.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 1200 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 6000); r > 0; r--) {
#pragma omp parallel for schedule(dynamic, 16)
        for (long i = 0; i < N; i++) {
            uint64_t value = x[i];
            const long most = 20 + (long)(word((uint64_t)(i + r)) % 100);
            for (long k = 0; k < most; k++)
                value = next(value, (uint64_t)k);
            x[i] = value;
        }
    }
    return tell("dynamic", x, sizeof x);
}
