// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Active waiting at application level, as codes do that trust to have their CPUs to themselves.
// No yield and no futex on purpose: what these waits do to a shared machine is what they are for.
#ifndef COPLACE_SPIN_H
#define COPLACE_SPIN_H

#include "app.h"

// One counter a cache line, so that a waiting thread reads a line that one other thread writes.
struct spin_flag {
    long value;
    char pad[APP_CACHE_LINE - sizeof(long)];
};

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void spin_set(struct spin_flag *flag, long value)
{
    __atomic_store_n(&flag->value, value, __ATOMIC_RELEASE);
}

static inline void spin_until_at_least(struct spin_flag *flag, long value)
{
    while (__atomic_load_n(&flag->value, __ATOMIC_ACQUIRE) < value)
        spin_pause();
}

// A barrier for `width` threads; the last one to arrive opens it. Start with zeroes.
struct spin_barrier {
    struct spin_flag arrived, opened;
};

static inline void spin_barrier_wait(struct spin_barrier *barrier, int width)
{
    const long round = __atomic_load_n(&barrier->opened.value, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&barrier->arrived.value, 1, __ATOMIC_ACQ_REL) == width) {
        __atomic_store_n(&barrier->arrived.value, 0, __ATOMIC_RELAXED);
        spin_set(&barrier->opened, round + 1);
    } else {
        spin_until_at_least(&barrier->opened, round + 1);
    }
}

#endif
