/* A parent and seven workers that share its data, as loaders and servers do: `shares MIB SECONDS`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)(argc > 1 ? atol(argv[1]) : 64) << 20;
    double until = now() + (argc > 2 ? atof(argv[2]) : 2);
    char *data = malloc(bytes);
    if (!data)
        return 1;
    memset(data, 1, bytes);
    for (int worker = 0; worker < 7; worker++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            long sum = 0;
            while (now() < until) {
                for (size_t at = 0; at < bytes; at += 4096)
                    sum += data[at];
                usleep(20000);
            }
            _exit(sum == 0);
        }
    }
    int status, worst = 0;
    while (wait(&status) > 0)
        worst |= status;
    puts(worst ? "FAILED" : "VERIFIED");
    return worst != 0;
}
