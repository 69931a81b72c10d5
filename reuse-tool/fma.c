// SPDX-License-Identifier: GPL-2.0-or-later
//
// Fused multiplications by the processor's own instruction. VEX computes x * y + z of every number of a vector by a
// function in integer arithmetic, which takes a hundred times what the instruction does. The linker puts these in its
// place (--wrap); where the processor lacks the instruction they hand on to it. Both round to nearest, as Valgrind
// does in all vector instructions.
#include "tool.h"

void __real_h_generic_calc_MAddF64(double *result, double *x, double *y, double *z);
void __real_h_generic_calc_MAddF32(float *result, float *x, float *y, float *z);

static Bool has_fma;

void find_fma(void)
{
    __builtin_cpu_init();
    has_fma = __builtin_cpu_supports("fma") != 0;
}

void __wrap_h_generic_calc_MAddF64(double *result, double *x, double *y, double *z);
void __wrap_h_generic_calc_MAddF64(double *result, double *x, double *y, double *z)
{
    if (UNLIKELY(!has_fma)) {
        __real_h_generic_calc_MAddF64(result, x, y, z);
        return;
    }
    // In assembly, so that nothing around it needs the instruction's extension.
    double fused = *x;
    __asm__("vfmadd213sd %2, %1, %0" : "+x"(fused) : "x"(*y), "m"(*z));
    *result = fused;
}

void __wrap_h_generic_calc_MAddF32(float *result, float *x, float *y, float *z);
void __wrap_h_generic_calc_MAddF32(float *result, float *x, float *y, float *z)
{
    if (UNLIKELY(!has_fma)) {
        __real_h_generic_calc_MAddF32(result, x, y, z);
        return;
    }
    float fused = *x;
    __asm__("vfmadd213ss %2, %1, %0" : "+x"(fused) : "x"(*y), "m"(*z));
    *result = fused;
}
