/* Multiplies matrices of random numbers and factorizes the product's symmetric part with the threads of OpenBLAS, and
 * prints a hash of the factors. Prototypes stand here because the package of the library comes without headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hash.h"

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
	    const int *, const double *, const int *, const double *, double *, const int *);
void dpotrf_(const char *, const int *, double *, const int *, int *);

enum { N = 700 };

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 60, n = N, info = 0;
	const size_t count = (size_t)N * N;
	double *a = malloc(count * sizeof *a), *c = calloc(count, sizeof *c), *sum = calloc(count, sizeof *sum);
	double one = 1, none = 0;

	if (!a || !c || !sum)
		return 1;
	random_numbers(a, count);
	for (int round = 0; round < rounds && !info; round++) {
		dgemm_("N", "T", &n, &n, &n, &one, a, &n, a, &n, &none, c, &n);
		for (int i = 0; i < N; i++)
			c[(size_t)i * N + i] += N;
		dpotrf_("L", &n, c, &n, &info);
		for (size_t i = 0; i < count; i++) {
			sum[i] += c[i];
			a[i] = 0.999 * a[i] + 1e-6 * c[i];
		}
	}
	print_hash(sum, count * sizeof *sum);
	return info != 0;
}
