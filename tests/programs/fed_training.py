"""A training whose batches are made by two forked worker processes, as data loaders do: the parent
computes with OpenMP meanwhile. Prints its result."""

import multiprocessing

import numpy
from sklearn.cluster import MiniBatchKMeans


def batch(number):
    rng = numpy.random.default_rng(number)
    return numpy.tanh(rng.normal(size=(3000, 16)) @ rng.normal(size=(16, 16)))


if __name__ == "__main__":
    model = MiniBatchKMeans(n_clusters=32, n_init=1, random_state=0, max_no_improvement=None)
    with multiprocessing.get_context("fork").Pool(2) as workers:
        for features in workers.imap(batch, range(60)):
            model.partial_fit(features)
    print("result", numpy.round(model.cluster_centers_, 9).tobytes().hex()[:4000])
