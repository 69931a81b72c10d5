// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a static loop over an array of structures; each is moved on by itself.
// Seen in: particle pushers and integrators, such as the drift step of openmm and of Gadget-like codes.
// expect: gcc=resizable clang=resizable
// flags: -O0; -O2; -O3
#include "teams.h"

enum { N = 8000 };
struct particle {
    double at[3], speed[3];
    int cell, crossed;
};
static struct particle p[N];

int main(int argc, char **argv)
{
    for (uint64_t i = 0; i < N; i++)
        for (uint64_t k = 0; k < 3; k++)
            p[i].at[k] = unit(6 * i + k), p[i].speed[k] = unit(6 * i + 3 + k) - 0.5;
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < 3; k++) {
                p[i].at[k] += 0.01 * p[i].speed[k];
                if (p[i].at[k] < 0 || p[i].at[k] > 1) {
                    p[i].speed[k] = -p[i].speed[k];
                    p[i].crossed++;
                }
            }
            p[i].cell = (int)(p[i].at[0] * 16) + 16 * (int)(p[i].at[1] * 16);
        }
    }
    return tell("static_struct", p, sizeof p);
}
