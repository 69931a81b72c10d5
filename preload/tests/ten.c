/* One of the ten, for as many rounds as it is told on stdin; answers with the digest. `team` tells a team's size,
 * `explicit N` that of a region with a number of its own. Built by GCC and by clang. */
#include <stdio.h>

#include "ten.h"

/* Regions that capture so many variables: clang passes each of them to the runtime. */
#define TEN_OF(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#define HUNDRED_OF(X, n)                                                                                    \
    TEN_OF(X, n##0) TEN_OF(X, n##1) TEN_OF(X, n##2) TEN_OF(X, n##3) TEN_OF(X, n##4)                         \
    TEN_OF(X, n##5) TEN_OF(X, n##6) TEN_OF(X, n##7) TEN_OF(X, n##8) TEN_OF(X, n##9)
#define DECLARE(n) long v##n = seed + 1##n;
#define ADD(n) own += v##n;
#define CAPTURING(name, VARIABLES)                                                                          \
    static long name(long seed)                                                                             \
    {                                                                                                       \
        long sum = 0;                                                                                       \
        VARIABLES(DECLARE)                                                                                  \
        _Pragma("omp parallel for reduction(+ : sum)") for (int i = 0; i < 12; i++)                         \
        {                                                                                                   \
            long own = i;                                                                                   \
            VARIABLES(ADD)                                                                                  \
            sum += own;                                                                                     \
        }                                                                                                   \
        return sum;                                                                                         \
    }
#define THREE(X) X(1) X(2) X(3)
#define TEN(X) TEN_OF(X, 1)
#define FORTY(X) TEN_OF(X, 1) TEN_OF(X, 2) TEN_OF(X, 3) TEN_OF(X, 4)
#define HUNDRED(X) HUNDRED_OF(X, 1)
#define THREE_HUNDRED(X) HUNDRED_OF(X, 1) HUNDRED_OF(X, 2) HUNDRED_OF(X, 3)
#define THIRTEEN_HUNDRED(X)                                                                                 \
    THREE_HUNDRED(X) HUNDRED_OF(X, 4) HUNDRED_OF(X, 5) HUNDRED_OF(X, 6) HUNDRED_OF(X, 7) HUNDRED_OF(X, 8)     \
    HUNDRED_OF(X, 9) HUNDRED_OF(X, 10) HUNDRED_OF(X, 11) HUNDRED_OF(X, 12) HUNDRED_OF(X, 13)
CAPTURING(capture_3, THREE)
CAPTURING(capture_10, TEN)
CAPTURING(capture_40, FORTY)
CAPTURING(capture_100, HUNDRED)
CAPTURING(capture_300, THREE_HUNDRED)
CAPTURING(capture_1300, THIRTEEN_HUNDRED)

int main(void)
{
    char line[128];
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        char word[64] = "";
        long number = 0;
        int n = 0;
        sscanf(line, "%63s %ld", word, &number);
        if (!strcmp(word, "team")) {
#pragma omp parallel
#pragma omp single
            n = omp_get_num_threads();
            printf("%d\n", n);
        } else if (!strcmp(word, "explicit")) {
#pragma omp parallel num_threads((int)number)
#pragma omp single
            n = omp_get_num_threads();
            printf("%d\n", n);
        } else if (!strcmp(word, "capture")) {
            printf("%ld %ld %ld %ld %ld %ld\n", capture_3(number), capture_10(number), capture_40(number),
                   capture_100(number), capture_300(number), capture_1300(number));
        } else if (!strcmp(word, "dynamic")) {
            omp_set_dynamic((int)number);
            printf("%d\n", omp_get_dynamic());
        } else if (!strcmp(word, "league")) {
            int most = 0;
#pragma omp teams distribute num_teams((int)number) reduction(max : most)
            for (int i = 0; i < 8; i++)
                most = omp_get_num_teams() > most ? omp_get_num_teams() : most;
            printf("%d\n", most);
        } else {
            printf("%016llx\n", (unsigned long long)ten_digest(word, number));
        }
        fflush(stdout);
    }
    return 0;
}
