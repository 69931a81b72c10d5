/* What ranks of an MPI program look like from outside: `ranks SECONDS` runs two processes that load OpenMP, use no
 * region of it, spin for each other, and during their first half second bind themselves to one CPU after the other and
 * back, as hwloc and the libraries below MPI do. Each says in the end how many CPUs it is left with. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
    _Atomic long turn;
    _Atomic int over;
    int cpus[2];
};

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Finds out which CPUs there are, and leaves the mask as it was. */
static void look_at_cpus(void)
{
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof before, &before);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &before))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    usleep(1000);
    sched_setaffinity(0, sizeof before, &before);
}

static void rank(struct shared *shared, int mine, double seconds)
{
    cpu_set_t last;
    double began = now(), looked = 0;
    for (long step = 0; !atomic_load(&shared->over); step++) {
        double at = now() - began;
        if (at < 0.5 && at - looked > 0.02) {
            look_at_cpus();
            looked = at;
        }
        for (volatile int work = 0; work < 20000; work++)
            ;
        if (mine == 0 && at > seconds)
            atomic_store(&shared->over, 1);
        long until = step + 1;
        atomic_fetch_add(&shared->turn, 1);
        while (atomic_load(&shared->turn) < 2 * until && !atomic_load(&shared->over))
            ;
    }
    sched_getaffinity(0, sizeof last, &last);
    shared->cpus[mine] = CPU_COUNT(&last);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || omp_get_max_threads() < 1)
        return 1;
    pid_t child = fork();
    if (child < 0)
        return 1;
    rank(shared, child == 0, seconds);
    if (child == 0)
        return omp_get_max_threads() < 1;
    int status;
    waitpid(child, &status, 0);
    printf("%ld steps\ncpus %d %d\n", atomic_load(&shared->turn) / 2, shared->cpus[0], shared->cpus[1]);
    printf("VERIFIED\n");
    return status != 0;
}
