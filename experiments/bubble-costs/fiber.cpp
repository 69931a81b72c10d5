// Boost.Fiber on one thread, with pooled stacks.
#include <boost/fiber/all.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace fibers = boost::fibers;
using clock_type = std::chrono::steady_clock;

static boost::fibers::pooled_fixedsize_stack stacks;

static void told(const char *name, long count, clock_type::time_point began)
{
	std::printf("%s %.2f\n", name, std::chrono::duration<double, std::nano>(clock_type::now() - began).count() / count);
}

static long fib(long n)
{
	if (n < 2)
		return n;
	long result = 0;
	fibers::fiber other(std::allocator_arg, stacks, [&result, n] { result = fib(n - 1); });
	long here = fib(n - 2);
	other.join();
	return here + result;
}

struct semaphore {
	fibers::mutex mutex;
	fibers::condition_variable changed;
	long permits = 0;
	void post()
	{
		{
			std::unique_lock<fibers::mutex> lock(mutex);
			permits++;
		}
		changed.notify_one();
	}
	void wait()
	{
		std::unique_lock<fibers::mutex> lock(mutex);
		changed.wait(lock, [this] { return permits > 0; });
		permits--;
	}
};

int main(int argc, char **argv)
{
	long scale = argc > 1 ? std::atol(argv[1]) : 100, count = 2000 * scale;
	fibers::fiber yields(std::allocator_arg, stacks, [count] {
		for (long at = 0; at < count; at++)
			boost::this_fiber::yield();
	});
	auto began = clock_type::now();
	for (long at = 0; at < count; at++)
		boost::this_fiber::yield();
	told("yield", 2 * count, began);
	yields.join();

	began = clock_type::now();
	for (long at = 0; at < count; at++)
		fibers::fiber(std::allocator_arg, stacks, [] {}).join();
	told("create-join", count, began);

	semaphore here, there;
	fibers::fiber answers(std::allocator_arg, stacks, [&, count] {
		for (long at = 0; at < count; at++) {
			here.wait();
			there.post();
		}
	});
	began = clock_type::now();
	for (long at = 0; at < count; at++) {
		here.post();
		there.wait();
	}
	told("blocking-switch", 2 * count, began);
	answers.join();

	long times = scale / 10 > 0 ? scale / 10 : 1;
	began = clock_type::now();
	for (long at = 0; at < times; at++)
		fib(20);
	told("fork-join", 10945 * times, began);
}
