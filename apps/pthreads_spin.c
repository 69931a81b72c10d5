// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Plain POSIX threads without OpenMP: affine phases on an array, with a spin barrier after each.
// No tool can resize it; it can be placed, or take turns. Width: --threads, else the CPUs it may
// use when it starts. An iteration is one phase (reported as regions, too). Verified exactly.
#define _GNU_SOURCE
#include "common/affine.h"
#include "common/spin.h"
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static const struct app_spec spec = {
    .name = "pthreads_spin", .what = "POSIX threads with a spinning barrier, no OpenMP",
    .n_means = "elements of the array", .n_min = 16, .n_max = 100000000, .takes_threads = true,
    .classes = {{'T', 20480, 200}, {'S', 20480, 80000}, {'M', 20480, 320000}, {'L', 20480, 1280000},
                {'X', 20480, 9600000}},
};

static struct spin_barrier barrier;
static uint64_t *buffers[2];
static int width;

static void *work(void *argument)
{
    const long t = (long)(intptr_t)argument, n = app.n;
    for (long it = 0; it < app.iterations; it++) {
        uint64_t *from = buffers[it % 2], *to = buffers[(it + 1) % 2];
        affine_phase(to, from, n * t / width, n * (t + 1) / width, n);
        spin_barrier_wait(&barrier, width);
        if (app.corrupt) { // costs nothing otherwise: the flag never changes
            if (t == 0 && app_corrupt_now(it))
                to[n / 3] ^= 1u << 20;
            spin_barrier_wait(&barrier, width);
        }
        if (t == 0)
            app_count_team(width);
    }
    return NULL;
}

static int usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN); // more CPUs than a cpu_set_t can hold
    return online > 0 ? (int)online : 1;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    width = app.threads ? app.threads : usable_cpus();
    for (int i = 0; i < 2; i++)
        buffers[i] = app_alloc((size_t)app.n, sizeof(uint64_t));
    affine_init(buffers[0], 0, app.n);
    pthread_t *threads = app_alloc_aside((size_t)width, sizeof *threads);

    app_start();
    for (long t = 1; t < width; t++) {
        const int error = pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t);
        if (error) { // the threads that exist spin for this one for ever: end the process
            printf("FAILED: cannot create thread %ld of %d: %s\n", t, width, strerror(error));
            exit(1);
        }
    }
    work((void *)0);
    for (long t = 1; t < width; t++)
        pthread_join(threads[t], NULL);
    app_stop();

    affine_verify(buffers[app.iterations % 2], app.n, (uint64_t)app.iterations);
    return app_finish("%016llx", (unsigned long long)buffers[app.iterations % 2][app.n / 2]);
}
