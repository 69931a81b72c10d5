// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The library of late_flush.c: what compilers link into a library that is built with -ffast-math.
#include <xmmintrin.h>

__attribute__((constructor)) static void set_fast_math(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
