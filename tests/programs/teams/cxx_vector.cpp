// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: loops over std::vector in C++, with what the compiler inlines of it.
// Seen in: most of C++: OpenMS, DIPlib's pixel loops, ginkgo's omp backend.
// expect: gcc=resizable clang=resizable
#include <algorithm>
#include <vector>

#include "teams.h"

int main(int argc, char **argv)
{
    std::vector<double> x(60000), y(x.size());
    for (std::size_t i = 0; i < x.size(); i++)
        x[i] = unit(i);
    for (long r = rounds_of(argc, argv, 13300); r > 0; r--) {
        const double bound = 1.0 / static_cast<double>(r);
#pragma omp parallel for schedule(static)
        for (std::size_t i = 0; i < x.size(); i++)
            y[i] = std::max(bound, 0.5 * (y[i] + x[i]));
        std::swap(x, y);
    }
    return tell("cxx_vector", x.data(), x.size() * sizeof(double));
}
