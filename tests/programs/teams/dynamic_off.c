// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: the program says by omp_set_dynamic(0) that it must have the team that it asks for, and cuts work by that.
// Seen in: trinityrnaseq (after issue 9), openvinotoolkit/openvino pull 26801, CppAD's examples.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 60000 };
static uint64_t x[N];

int main(int argc, char **argv)
{
    const int threads = omp_get_max_threads();
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
#pragma omp parallel
        {
            const long me = omp_get_thread_num();
            for (long i = N * me / threads; i < N * (me + 1) / threads; i++)
                x[i] = next(x[i], (uint64_t)r);
        }
    }
    return tell("dynamic_off", x, sizeof x);
}
