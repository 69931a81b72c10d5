/* Two pairs of threads that share data two by two. Build:
 *   cc hello.c $(pkg-config --cflags --libs coplace-bubbles)
 */
#include <coplace/bubbles.h>
#include <stdio.h>
#include <stdlib.h>

struct pair {
	coplace_mutex *mutex;
	long sum;
};

static void *add(void *argument)
{
	struct pair *pair = argument;
	for (int turn = 0; turn < 1000; turn++) {
		coplace_mutex_lock(pair->mutex);
		pair->sum += turn;
		coplace_mutex_unlock(pair->mutex);
		coplace_yield();
	}
	return pair;
}

static void *forever(void *argument)
{
	for (;;)
		coplace_yield();
	return argument;
}

static void *leaves(void *argument)
{
	coplace_exit(argument);
}

struct exchange {
	coplace_thread *asks;
	int asked, answered;
};

static void *answers(void *argument)
{
	struct exchange *exchange = argument;
	while (!__atomic_load_n(&exchange->asked, __ATOMIC_ACQUIRE))
		coplace_park();
	__atomic_store_n(&exchange->answered, 1, __ATOMIC_RELEASE);
	coplace_unpark(exchange->asks);
	return NULL;
}

static int destroyed;

static void destroy(void *value)
{
	destroyed += *(int *)value;
}

static void *has_value(void *argument)
{
	static int seven = 7;
	coplace_key key = *(coplace_key *)argument;
	if (coplace_key_get(key))
		abort();
	coplace_key_set(key, &seven, destroy);
	coplace_yield();
	return coplace_key_get(key);
}

static void check(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "wrong: %s\n", what);
		exit(1);
	}
}

static void first(void *argument)
{
	struct pair pairs[2];
	coplace_bubble *all = coplace_bubble_make("all");
	for (int at = 0; at < 2; at++) {
		pairs[at] = (struct pair){ coplace_mutex_make(), 0 };
		coplace_bubble *two = coplace_bubble_make(at ? "right" : "left");
		check(coplace_bubble_insert_bubble(all, two) == 0, "a bubble goes into another");
		check(coplace_bubble_insert_bubble(two, all) != 0, "but not into one of its own");
		for (int member = 0; member < 2; member++) {
			coplace_thread *thread = coplace_make("adds", 7, 0, add, &pairs[at]);
			check(coplace_bubble_insert(two, thread) == 0, "a thread goes into a bubble");
			coplace_detach(thread);
		}
		coplace_bubble_free(two);
	}
	coplace_bubble_wake(all);
	coplace_bubble_join(all);
	coplace_bubble_free(all);
	for (int at = 0; at < 2; at++) {
		check(pairs[at].sum == 999000, "both of a pair have added");
		coplace_mutex_free(pairs[at].mutex);
	}

	void *result;
	coplace_thread *thread = coplace_spawn(forever, NULL);
	coplace_cancel(thread);
	coplace_join(thread, &result);
	check(result == COPLACE_CANCELLED, "a cancelled thread ends");
	coplace_join(coplace_spawn(leaves, &result), &result);
	check(result == &result, "an exit's result comes back");
	coplace_key key = coplace_key_make();
	coplace_join(coplace_spawn(has_value, &key), &result);
	check(*(int *)result == 7 && destroyed == 7, "values are a thread's own, and destroyed with it");
	struct exchange exchange = { .asks = coplace_self() };
	thread = coplace_spawn(answers, &exchange);
	coplace_yield();
	__atomic_store_n(&exchange.asked, 1, __ATOMIC_RELEASE);
	coplace_unpark(thread);
	while (!__atomic_load_n(&exchange.answered, __ATOMIC_ACQUIRE))
		coplace_park();
	coplace_join(thread, NULL);
	check(coplace_make(NULL, 99, 0, add, NULL) == NULL, "99 is no priority");
	check(coplace_use_scheduler("none") != 0 && coplace_use_scheduler("spread") == 0, "schedulers have names");
	*(int *)argument = 1;
}

int main(void)
{
	int done = 0;
	check(coplace_run("none", first, &done) != 0, "there is no such scheduler");
	check(coplace_run("burst", first, &done) == 0 && done, "it runs");
	puts("two pairs have added");
	return 0;
}
