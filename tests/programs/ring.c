/* An MPI job whose ranks spin for one another: `ring ROUNDS` passes a token round and round with some work between,
 * as time steps do. The sum tells whether a message was lost. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int me, ranks;
    long rounds = argc > 1 ? atol(argv[1]) : 1000, token = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    volatile double x = 1;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 200000; i++)
            x = x * 1.0000001 + 1e-9;
        if (me == 0) {
            token += 1;
            MPI_Send(&token, 1, MPI_LONG, 1 % ranks, 0, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_LONG, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_LONG, me - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += 1;
            MPI_Send(&token, 1, MPI_LONG, (me + 1) % ranks, 0, MPI_COMM_WORLD);
        }
    }
    if (me == 0)
        puts(token == rounds * ranks ? "VERIFIED" : "FAILED: the token");
    MPI_Finalize();
    return 0;
}
