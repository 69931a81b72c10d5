// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Computes with one thread until SIGTERM. A second one, half a second after the start, spins for 60 ms as
// libraries' threads do when they are made, prints for how many it really did, and sleeps until SIGUSR1;
// from then on it computes, too.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t computes, ends;

static void note(int signal)
{
    if (signal == SIGUSR1)
        computes = 1;
    else
        ends = 1;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *second(void *unused)
{
    usleep(500000);
    long began = now_ms();
    while (now_ms() < began + 60)
        ;
    printf("spun %ld ms\n", now_ms() - began);
    fflush(stdout);
    while (!computes && !ends)
        usleep(10000);
    while (!ends)
        ;
    return unused;
}

int main(void)
{
    signal(SIGUSR1, note);
    signal(SIGTERM, note);
    pthread_t thread;
    if (pthread_create(&thread, NULL, second, NULL))
        return 1;
    while (!ends)
        ;
    return pthread_join(thread, NULL);
}
