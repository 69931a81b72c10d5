// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a library's template takes the loop's body as a lambda and runs it in a loop of its own.
// Seen in: llnl/RAJA's forall with an OpenMP policy, Kokkos::parallel_for over a range.
// expect: gcc=rigid clang=rigid
#include "teams.h"

namespace {
template <typename Body> void forall(long from, long to, Body body)
{
#pragma omp parallel for schedule(static)
    for (long i = from; i < to; i++)
        body(i);
}
} // namespace

int main(int argc, char **argv)
{
    enum { N = 48000 };
    static double x[N], y[N];
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
        forall(0, N, [=](long i) { y[i] = 0.5 * x[i] + static_cast<double>(i + r); });
        forall(1, N - 1, [=](long i) { x[i] = 0.25 * y[i - 1] + 0.5 * y[i] + 0.25 * y[i + 1]; });
    }
    return tell("cxx_forall", x, sizeof x);
}
