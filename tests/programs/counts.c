/* counts FILE SIGNAL...: computes, and counts how often it gets each of these signals; writes FILE when it is ready,
 * and again 1.5 s after the last signal that came, with a line "SIGNAL COUNT" for each. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t counts[65];
static volatile sig_atomic_t all;

static void got(int signal)
{
    counts[signal]++;
    all++;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int say(int argc, char **argv)
{
    char made[4096];
    snprintf(made, sizeof made, "%s.made", argv[1]);
    FILE *file = fopen(made, "w");
    if (!file)
        return 1;
    for (int i = 2; i < argc; i++)
        fprintf(file, "%s %d\n", argv[i], (int)counts[atoi(argv[i])]);
    return fclose(file) || rename(made, argv[1]);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = got};
    for (int i = 2; i < argc; i++)
        sigaction(atoi(argv[i]), &action, NULL);
    if (argc < 3 || say(argc, argv))
        return 2;
    double began = now(), last = began;
    int seen = 0;
    /* Computing all the time: a program that sleeps may take two signals for one. */
    while (now() < began + 60 && (!seen || now() < last + 1.5))
        if (all != seen) {
            seen = all;
            last = now();
        }
    return say(argc, argv);
}
