// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: a thread_local object counts in its thread, and adds what it counted to the total when its thread ends; the
// program adds those that still live.
// Seen in: facebook/folly issue 133 (ThreadCachedInt), llvm-project issue 72162 (their destructors' time).
// expect: gcc=rigid clang=rigid
#include <mutex>
#include <set>

#include "teams.h"

namespace {
struct Counter;
std::mutex guard;
std::set<Counter *> living;
uint64_t threads_seen;

struct Counter {
    uint64_t count = 0;
    Counter()
    {
        const std::lock_guard<std::mutex> lock(guard);
        living.insert(this);
        threads_seen++;
    }
    ~Counter()
    {
        const std::lock_guard<std::mutex> lock(guard);
        living.erase(this);
    }
};
thread_local Counter counter;
} // namespace

int main(int argc, char **argv)
{
    for (long r = rounds_of(argc, argv, 10000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < 20000; i++)
            counter.count += next(static_cast<uint64_t>(i), static_cast<uint64_t>(r)) >> 40;
    }
    uint64_t results[2] = {0, threads_seen};
    {
        const std::lock_guard<std::mutex> lock(guard);
        for (const Counter *one : living)
            results[0] += one->count;
    }
    return tell("cxx_thread_local", results, sizeof results);
}
