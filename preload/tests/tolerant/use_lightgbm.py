"""Trains LightGBM in the ways that divide work differently, and prints a digest of each model and forecast. Linear
trees add up in an order that depends on the number of threads, with coplace or without; of these the forecast's
error is shown, rounded."""

import hashlib

import lightgbm
import numpy

THREADS = 4
rng = numpy.random.default_rng(3)
rows, columns = 2000, 10
features = rng.normal(size=(rows, columns))
features[:, 3] = rng.integers(0, 9, rows)
features[rng.random((rows, columns)) < 0.3] = 0
line = features[:, 0] * features[:, 1] + numpy.sin(3 * features[:, 2]) + 0.1 * rng.normal(size=rows)
classes = numpy.digitize(line, [-0.5, 0.5])

WAYS = {
    "regression by columns": ({"objective": "regression", "force_col_wise": True}, line),
    "regression by rows": ({"objective": "l1", "force_row_wise": True}, line),
    "bagging, categorical": ({"objective": "binary", "bagging_fraction": 0.6, "bagging_freq": 1,
                              "feature_fraction": 0.7}, classes > 0),
    "goss": ({"objective": "huber", "data_sample_strategy": "goss"}, line),
    "dart, several classes": ({"objective": "multiclass", "num_class": 3, "boosting": "dart"}, classes),
    "random forest": ({"objective": "quantile", "boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}, line),
    "ranking": ({"objective": "lambdarank", "group": 100}, classes),
    "linear trees": ({"objective": "regression", "linear_tree": True}, line),
    "quantized gradients": ({"objective": "regression", "use_quantized_grad": True}, line),
}

for way, (settings, target) in WAYS.items():
    settings = dict(settings)
    group = settings.pop("group", None)
    settings |= {"verbose": -1, "seed": 1, "num_leaves": 15, "num_threads": THREADS, "min_data_in_bin": 1}
    data = lightgbm.Dataset(features, target, categorical_feature=[3] if "categorical" in way else "auto",
                            group=[group] * (rows // group) if group else None)
    model = lightgbm.train(settings, data, num_boost_round=4)
    forecast = model.predict(features, num_threads=THREADS)
    if settings.get("linear_tree"):
        print(way, round(float(numpy.mean((forecast - target) ** 2)), 6), flush=True)
        continue
    digest = hashlib.sha256(model.model_to_string().encode())
    digest.update(forecast.tobytes())
    digest.update(model.predict(features[:200], pred_contrib=True, num_threads=THREADS).tobytes())
    print(way, digest.hexdigest()[:16], flush=True)
