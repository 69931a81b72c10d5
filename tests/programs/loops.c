// Short loops of many kinds, with every number of rounds from none to some dozens, and a hash of all that is in
// registers after them. With a signal's number it asks for a handler of that signal first.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "hash.h"

enum { MOST = 64, ROUNDS = 41 };
static double numbers[MOST];
static uint64_t words[4 * MOST];
static uint32_t halves[MOST];
static int32_t order[MOST];

static void nothing(int signal) { (void)signal; }

static void add_number(double number)
{
    union {
        double number;
        uint64_t bits;
    } as = {number};
    add(as.bits);
}

// As compilers make them

__attribute__((noinline)) static double gather(long from, long to)
{
    double sum = 0;
    for (long i = from; i < to; i++)
        sum += numbers[order[i]] * numbers[i];
    return sum;
}

__attribute__((noinline)) static uint64_t by_three(uint64_t to)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < to; i += 3)
        sum = sum * 5 + words[i];
    return sum;
}

__attribute__((noinline)) static uint64_t down(int n)
{
    uint64_t sum = 0;
    while (n-- > 0)
        sum = (sum ^ words[n]) * 3;
    return sum;
}

__attribute__((noinline)) static uint32_t short_counter(uint32_t from, uint32_t rounds)
{
    uint32_t sum = 0;
    for (uint32_t i = from; i != from + rounds; i++) // past the largest, too
        sum = sum * 7 + halves[i % MOST];
    return sum;
}

__attribute__((noinline)) static long find(uint64_t wanted, long most)
{
    long i = 0;
    while (i < most && words[i] != wanted)
        i++;
    return i;
}

__attribute__((noinline)) static void move(uint64_t *to, const uint64_t *from, long n)
{
    for (long i = 0; i < n; i++)
        to[i] = from[i] + (uint64_t)i;
}

// What a loop overwrites while it is being read: later rounds read what earlier ones wrote.
__attribute__((noinline)) static void spread(uint64_t *at, long n)
{
    for (volatile long *count = &n; *count > 0; --*count, at++)
        at[1] = at[0] * 3 + 1;
}

__attribute__((noinline)) static double product(const double *left, const double *right, long n)
{
    double sum = 1;
    for (long i = 0; i != n; i++)
        sum = sum * 0.5 + left[i] * right[n - 1 - i];
    return sum;
}

#ifdef __x86_64__
// With the flags that they leave

#define LOOP(name, first, step, test)                                                                          \
    __attribute__((noinline)) static void name(uint64_t i, uint64_t end)                                       \
    {                                                                                                          \
        uint64_t sum = 0, last = 0, flags;                                                                     \
        __asm__ volatile("1: " first "\n\tmov (%5,%0,8), %2\n\t"                                               \
                         "lea 1(%2,%1,4), %1\n\t" step "\n\t" test " 1b\n\t"                                   \
                         "pushfq\n\tpop %3"                                                                    \
                         : "+r"(i), "+r"(sum), "=&r"(last), "=&r"(flags)                                       \
                         : "r"(end), "r"(words)                                                                \
                         : "cc", "memory");                                                                    \
        add(i), add(sum), add(last), add(flags & 0x8d5);                                                       \
    }
LOOP(until_equal, "", "add $1, %0\n\tcmp %4, %0", "jne")
LOOP(until_equal_from_next, "add $1, %0", "cmp %4, %0", "jne")
LOOP(until_equal_turned, "", "add $1, %0\n\tcmp %0, %4", "jne")
LOOP(while_below, "", "add $1, %0\n\tcmp %4, %0", "jb")
LOOP(while_less, "", "add $2, %0\n\tcmp %4, %0", "jl")
LOOP(while_not_above, "", "inc %0\n\tcmp %4, %0", "jbe")
LOOP(until_zero, "", "sub $1, %0", "jnz")
LOOP(until_minus, "", "dec %0", "jns")
LOOP(while_short_less, "", "add $1, %k0\n\tcmp %k4, %k0", "jl")
LOOP(until_short_equal, "", "add $1, %k0\n\tcmp %k4, %k0", "jne")
LOOP(until_byte_equal, "", "add $1, %b0\n\tcmp %b4, %b0", "jne")

static void with_flags(uint64_t n)
{
    for (uint64_t from = 0; from < 3; from++) {
        until_equal(from, from + n + 1);
        until_equal_from_next(from, from + n + 1);
        until_equal_turned(from, from + n + 1);
        while_below(from, from + n);
        while_less(from, from + n);
        while_not_above(from, from + n);
        until_zero(n + 1, 0);
        until_minus(n, 0);
        while_short_less(from, from + n);
        until_short_equal(from, from + n + 1);
        until_byte_equal(from, from + n + 1);
    }
}
#else
static void with_flags(uint64_t n) { (void)n; }
#endif

int main(int argc, char **argv)
{
    if (argc > 1)
        signal(atoi(argv[1]), nothing);
    for (long i = 0; i < MOST; i++) {
        numbers[i] = (double)(random_bits() >> 12) * 0x1p-52 - 0.5;
        halves[i] = (uint32_t)random_bits();
        order[i] = (int32_t)(random_bits() % MOST);
    }
    for (long i = 0; i < 4 * MOST; i++)
        words[i] = random_bits();
    for (int again = 0; again < 3; again++) {
        for (long n = 0; n < ROUNDS; n++) {
            add_number(gather(again, again + n));
            add(by_three(3 * (uint64_t)n + (uint64_t)again));
            add(down((int)n));
            add(short_counter(UINT32_MAX - 20, (uint32_t)n));
            add((uint64_t)find(words[n], again ? MOST : n / 2));
            move(words + 2 * MOST, words + again, n);
            move(words + MOST, words + MOST - 1, n); // each reads what the one before wrote
            spread(words + 3 * MOST, n);
            add_number(product(numbers, numbers + again, n));
            with_flags((uint64_t)n);
            add(words[2 * MOST + n]), add(words[MOST + n]), add(words[3 * MOST + n]);
        }
    }
    printf("loops %016llx\n", (unsigned long long)hash);
    return 0;
}
