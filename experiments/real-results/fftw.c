/* Transforms a field of random numbers forward and back, again and again, with the threads of libfftw3_omp, and prints
 * a hash of what comes out. Plans are estimated, so that they are the same in every run.
 * Prototypes stand here because the packages of the library come without headers. */
#include <stdio.h>
#include <stdlib.h>
#include "hash.h"

typedef double fftw_complex[2];
typedef struct fftw_plan_s *fftw_plan;
int fftw_init_threads(void);
void fftw_plan_with_nthreads(int threads);
fftw_plan fftw_plan_dft_3d(int, int, int, fftw_complex *, fftw_complex *, int sign, unsigned flags);
void fftw_execute(fftw_plan);
int omp_get_max_threads(void);

enum { N = 96, FORWARD = -1, BACKWARD = 1, ESTIMATE = 1U << 6 };

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 60;
	const size_t count = (size_t)N * N * N;
	fftw_complex *field = malloc(count * sizeof *field);

	if (!field || !fftw_init_threads())
		return 1;
	fftw_plan_with_nthreads(omp_get_max_threads());
	fftw_plan forward = fftw_plan_dft_3d(N, N, N, field, field, FORWARD, ESTIMATE);
	fftw_plan backward = fftw_plan_dft_3d(N, N, N, field, field, BACKWARD, ESTIMATE);
	random_numbers(&field[0][0], 2 * count);
	for (int round = 0; round < rounds; round++) {
		fftw_execute(forward);
		fftw_execute(backward);
		for (size_t i = 0; i < count; i++) {
			field[i][0] /= count;
			field[i][1] /= count;
		}
	}
	print_hash(field, count * sizeof *field);
	return 0;
}
