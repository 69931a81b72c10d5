/* How often a program is sent SIGCONT. `continued SECONDS` spins and then says it. A copy called `mpirun` is taken
 * for a launcher: `mpirun COMMAND…` starts the command twice, waits, and says how often it was itself. */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t continued;

static void count(int signal)
{
    (void)signal;
    continued++;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGCONT, &action, NULL);
    if (argc < 2)
        return 2;
    if (isdigit((unsigned char)argv[1][0])) {
        double until = now() + atof(argv[1]);
        while (now() < until)
            ;
        printf("continued %d\n", (int)continued);
        return 0;
    }
    for (int rank = 0; rank < 2; rank++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            execv(argv[1], argv + 1);
            _exit(127);
        }
    }
    while (wait(NULL) > 0)
        ;
    printf("launcher continued %d\n", (int)continued);
    return 0;
}
