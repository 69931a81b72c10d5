"""Trains a LightGBM model on made-up data, and checks that it learned something."""

import lightgbm
import numpy

rng = numpy.random.default_rng(1)
rows, columns = 40_000, 20
features = rng.normal(size=(rows, columns))
target = features[:, 0] * features[:, 1] + numpy.sin(3 * features[:, 2]) + 0.1 * rng.normal(size=rows)
model = lightgbm.train({"objective": "regression", "verbose": -1, "num_leaves": 63, "seed": 1},
                       lightgbm.Dataset(features, target), num_boost_round=500)
error = float(numpy.mean((model.predict(features) - target) ** 2) / numpy.var(target))
print("VERIFIED" if error < 0.1 else f"FAILED: unexplained variance {error}")
