// The system's threads, all on one processor.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long count;
static sem_t here, there;

static double now_ns(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

static void *yields(void *argument)
{
	for (long at = 0; at < count; at++)
		sched_yield();
	return argument;
}

static void *answers(void *argument)
{
	for (long at = 0; at < count; at++) {
		sem_wait(&here);
		sem_post(&there);
	}
	return argument;
}

static void *nothing(void *argument)
{
	return argument;
}

static void *fib(void *argument)
{
	long n = (long)argument;
	if (n < 2)
		return (void *)n;
	pthread_t other;
	void *result;
	if (pthread_create(&other, NULL, fib, (void *)(n - 1)))
		exit(1);
	long mine = (long)fib((void *)(n - 2));
	pthread_join(other, &result);
	return (void *)(mine + (long)result);
}

int main(int argc, char **argv)
{
	long scale = argc > 1 ? atol(argv[1]) : 100;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	pthread_t other;

	count = 200 * scale;
	pthread_create(&other, NULL, yields, NULL);
	double began = now_ns();
	yields(NULL);
	printf("yield %.2f\n", (now_ns() - began) / (2 * count));
	pthread_join(other, NULL);

	count = 20 * scale;
	began = now_ns();
	for (long at = 0; at < count; at++) {
		pthread_create(&other, NULL, nothing, NULL);
		pthread_join(other, NULL);
	}
	printf("create-join %.2f\n", (now_ns() - began) / count);

	count = 100 * scale;
	sem_init(&here, 0, 0);
	sem_init(&there, 0, 0);
	pthread_create(&other, NULL, answers, NULL);
	began = now_ns();
	for (long at = 0; at < count; at++) {
		sem_post(&here);
		sem_wait(&there);
	}
	printf("blocking-switch %.2f\n", (now_ns() - began) / (2 * count));
	pthread_join(other, NULL);

	// fib(12) makes 232 threads.
	long times = scale / 10 > 0 ? scale / 10 : 1;
	began = now_ns();
	for (long at = 0; at < times; at++)
		fib((void *)12);
	printf("fork-join %.2f\n", (now_ns() - began) / (232 * times));
	return 0;
}
