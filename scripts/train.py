"""Trains a LightGBM model on made-up data; prints a hash of the model, and whether it learned something."""

import hashlib

import lightgbm
import numpy

rng = numpy.random.default_rng(1)
rows, columns = 40_000, 20
features = rng.normal(size=(rows, columns))
target = features[:, 0] * features[:, 1] + numpy.sin(3 * features[:, 2]) + 0.1 * rng.normal(size=rows)
# Deterministic sums whatever the number of threads, as its documentation says.
options = {"objective": "regression", "verbose": -1, "num_leaves": 63, "seed": 1, "deterministic": True,
           "force_row_wise": True}
model = lightgbm.train(options, lightgbm.Dataset(features, target), num_boost_round=500)
error = float(numpy.mean((model.predict(features) - target) ** 2) / numpy.var(target))
print("model", hashlib.sha256(model.model_to_string().encode()).hexdigest()[:16])
print("VERIFIED" if error < 0.1 else f"FAILED: unexplained variance {error}")
