// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: an object of a class for each thread, in a vector; the objects remember from region to region.
// Seen in: DIPlib issue 191 (line filters), OpenMS pull 8739, Kokkos's per-thread instances, Eigen users' work spaces.
// expect: gcc=rigid clang=rigid
#include <vector>

#include "teams.h"

namespace {
struct Worker {
    uint64_t state = 1;
    uint64_t operator()(uint64_t value) { return state = next(state, value); }
};
} // namespace

int main(int argc, char **argv)
{
    std::vector<Worker> workers(static_cast<std::size_t>(omp_get_max_threads()));
    std::vector<uint64_t> x(20000);
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (std::size_t i = 0; i < x.size(); i++)
            x[i] += workers[static_cast<std::size_t>(omp_get_thread_num())](i);
    }
    return tell("cxx_workers", x.data(), x.size() * sizeof(uint64_t));
}
