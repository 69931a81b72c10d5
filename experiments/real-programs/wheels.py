"""What people do with Python's wheels, on made-up data. Prints a digest of the result.

    wheels.py lightgbm|xgboost|kmeans|numpy AMOUNT [TIMES]

Each library takes as many threads as it likes: that is the point. LightGBM notes in the file TIMES when it
started, began to train, ended each of its rounds, and was through with all, a line each, by
CLOCK_MONOTONIC."""

import time

started = time.monotonic()

import hashlib
import sys

import numpy

kind, amount = sys.argv[1], int(sys.argv[2])
rng = numpy.random.default_rng(1)


def table(rows, columns=20):
    features = rng.normal(size=(rows, columns))
    target = features[:, 0] * features[:, 1] + numpy.sin(3 * features[:, 2]) + 0.1 * rng.normal(size=rows)
    return features, target


if kind == "lightgbm":
    import lightgbm

    features, target = table(20_000)
    # Deterministic sums whatever the number of threads, as its documentation says.
    options = {"objective": "regression", "verbose": -1, "num_leaves": 63, "seed": 1, "deterministic": True,
               "force_row_wise": True}
    ends = []
    data = lightgbm.Dataset(features, target)
    began = time.monotonic()
    model = lightgbm.train(options, data, num_boost_round=amount, callbacks=[lambda _: ends.append(time.monotonic())])
    result = model.predict(features)
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w") as file:
            file.write("\n".join(map(repr, [started, began, *ends, time.monotonic()])))
elif kind == "xgboost":
    import xgboost

    features, target = table(20_000)
    data = xgboost.DMatrix(features, target)
    result = xgboost.train({"max_depth": 6, "seed": 1, "tree_method": "hist"}, data, num_boost_round=amount).predict(data)
elif kind == "kmeans":
    from sklearn.cluster import KMeans

    features, _ = table(40_000, 16)
    # Centres that no run of this length converges to: the work is the same each time.
    model = KMeans(n_clusters=64, n_init=1, init="random", max_iter=amount, tol=0.0, algorithm="lloyd", random_state=1)
    result = model.fit(features).cluster_centers_
elif kind == "numpy":
    matrix = rng.normal(size=(700, 700)) / 30
    result = matrix
    for _ in range(amount):
        result = result @ matrix
        result /= numpy.abs(result).max()
else:
    sys.exit(f"wheels.py: {kind}?")

# Sums in another order differ in their last digits: the digest is of the bits, the number for comparing.
print("digest", hashlib.sha256(numpy.ascontiguousarray(result).tobytes()).hexdigest()[:16])
print("value", repr(float(numpy.abs(result).mean())))
