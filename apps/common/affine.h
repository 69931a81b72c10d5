// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Work for short phases whose result is known exactly: one phase takes
//     to[i] = A * from[i + 1 mod n] + C        (64-bit, wrapping)
// so that after k phases v[i] = A^k * v0[i + k mod n] + C * (A^(k-1) + … + 1). An element that was
// lost, done twice, or read before its neighbour wrote it spoils a value for good.
#ifndef COPLACE_AFFINE_H
#define COPLACE_AFFINE_H

#include "app.h"

static const uint64_t affine_a = 6364136223846793005u, affine_c = 1442695040888963407u;

static inline void affine_init(uint64_t *v, long low, long high)
{
    for (long i = low; i < high; i++)
        v[i] = app_mix((uint64_t)i);
}

// One phase for the elements low ≤ i < high of n; returns the sum of what it wrote.
static inline uint64_t affine_phase(uint64_t *to, const uint64_t *from, long low, long high, long n)
{
    uint64_t sum = 0;
    for (long i = low; i < high; i++) {
        to[i] = affine_a * from[i + 1 < n ? i + 1 : 0] + affine_c;
        sum += to[i];
    }
    return sum;
}

// The map of k phases as one (a, c), by repeated squaring.
static inline void affine_power(uint64_t k, uint64_t *a, uint64_t *c)
{
    uint64_t base_a = affine_a, base_c = affine_c;
    *a = 1, *c = 0;
    for (; k; k >>= 1) {
        if (k & 1) {
            *c = base_a * *c + base_c;
            *a *= base_a;
        }
        base_c = base_a * base_c + base_c;
        base_a *= base_a;
    }
}

// Exact comparison of all elements with the closed form.
static inline void affine_verify(const uint64_t *v, long n, uint64_t phases)
{
    uint64_t a, c;
    affine_power(phases, &a, &c);
    for (long i = 0; i < n; i++) {
        const uint64_t want = a * app_mix((uint64_t)((i + (long)(phases % (uint64_t)n)) % n)) + c;
        if (!app_check(v[i] == want, "element %ld is %llx after %llu phases, not %llx", i, (unsigned long long)v[i],
                       (unsigned long long)phases, (unsigned long long)want))
            return;
    }
}

#endif
