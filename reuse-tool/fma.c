// SPDX-License-Identifier: GPL-2.0-or-later
//
// Fused multiplications by the processor's own instruction. VEX calls a function for x * y + z of every number of a
// vector, which puts the result together from several roundings, in some 30 ns. The linker puts these in its place
// (--wrap); where the processor lacks the instruction they hand on to it. Both round to nearest.
#include "tool.h"

static Bool has_fma;

void find_fma(void)
{
    __builtin_cpu_init();
    has_fma = __builtin_cpu_supports("fma") != 0;
}

// In assembly, so that nothing around it needs the instruction's extension.
#define FUSED(NAME, TYPE, INSTRUCTION)                                          \
    void __real_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z);                \
    void __wrap_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z);                \
    void __wrap_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z)                 \
    {                                                                           \
        if (UNLIKELY(!has_fma)) {                                               \
            __real_##NAME(result, x, y, z);                                     \
            return;                                                             \
        }                                                                       \
        TYPE fused = *x;                                                        \
        __asm__(INSTRUCTION " %2, %1, %0" : "+x"(fused) : "x"(*y), "m"(*z));    \
        *result = fused;                                                        \
    }

FUSED(h_generic_calc_MAddF64, double, "vfmadd213sd")
FUSED(h_generic_calc_MAddF32, float, "vfmadd213ss")
