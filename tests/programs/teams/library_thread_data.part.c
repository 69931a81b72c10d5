// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The library of library_thread_data.c: each thread that calls has its own sequence.
#include <stdint.h>

uint64_t draw(void);

static __thread uint64_t state = 1;

uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
