// Fused multiplications of numbers with random bits, every fourth a triple whose sum nearly cancels, single and in
// vectors, of both precisions; prints a hash of the results' bits. Which of several NaNs comes out is the
// instruction's own affair.
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hash.h"

static void add_doubles(const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        add(isnan(values[i]) ? 1 : bits);
    }
}

static void add_floats(const float *values, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        add(isnan(values[i]) ? 1 : bits);
    }
}

int main(void)
{
    double d[3][4], out[4];
    float f[3][8], out_single[8];
    for (int round = 0; round < 50000; round++) {
        for (int i = 0; i < 12; i++) {
            const uint64_t bits = random_bits();
            memcpy(&d[i / 4][i % 4], &bits, sizeof bits);
        }
        for (int i = 0; i < 24; i++) {
            const uint32_t bits = (uint32_t)random_bits();
            memcpy(&f[i / 8][i % 8], &bits, sizeof bits);
        }
        for (int i = 0; round % 4 == 0 && i < 4; i++)
            d[2][i] = -(d[0][i] * d[1][i]);
        for (int i = 0; round % 4 == 0 && i < 8; i++)
            f[2][i] = -(f[0][i] * f[1][i]);
        const __m256d x = _mm256_loadu_pd(d[0]), y = _mm256_loadu_pd(d[1]), z = _mm256_loadu_pd(d[2]);
        const __m256 a = _mm256_loadu_ps(f[0]), b = _mm256_loadu_ps(f[1]), c = _mm256_loadu_ps(f[2]);
        _mm256_storeu_pd(out, _mm256_fmadd_pd(x, y, z));
        add_doubles(out, 4);
        _mm256_storeu_pd(out, _mm256_fnmsub_pd(x, y, z));
        add_doubles(out, 4);
        _mm256_storeu_ps(out_single, _mm256_fmadd_ps(a, b, c));
        add_floats(out_single, 8);
        _mm256_storeu_ps(out_single, _mm256_fmsub_ps(a, b, c));
        add_floats(out_single, 8);
        // Half a vector, each operand in memory, and results that are operands at once, in every role.
        _mm_storeu_pd(out, _mm_fnmadd_pd(_mm256_castpd256_pd128(x), _mm256_castpd256_pd128(y), _mm_loadu_pd(d[2] + 2)));
        _mm_storeu_ps(out_single, _mm_fmadd_ps(_mm256_castps256_ps128(a), _mm_loadu_ps(f[1] + 3), _mm256_castps256_ps128(c)));
        add_doubles(out, 2);
        add_floats(out_single, 4);
        __m256d sum = x;
        __m256 single = a;
        __asm__("vfmadd132pd %2, %1, %0\n\tvfmadd213pd %2, %0, %0\n\tvfmadd231pd %2, %0, %0\n\tvfmadd231pd %1, %1, %0"
                : "+&x"(sum) : "x"(y), "m"(d[2]));
        __asm__("vfmadd231ps %2, %1, %0\n\tvfnmadd132ps %2, %0, %0\n\tvfmadd213ps %1, %0, %0"
                : "+&x"(single) : "x"(b), "m"(f[2]));
        _mm256_storeu_pd(out, sum);
        add_doubles(out, 4);
        _mm256_storeu_ps(out_single, single);
        add_floats(out_single, 8);
        out[0] = fma(d[0][0], d[1][0], d[2][0]);
        add_doubles(out, 1);
        out_single[0] = fmaf(f[0][0], f[1][0], f[2][0]);
        add_floats(out_single, 1);
    }
    printf("fused %016llx\n", (unsigned long long)hash);
    return 0;
}
