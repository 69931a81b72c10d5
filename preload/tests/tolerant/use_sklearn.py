"""Uses what scikit-learn does in parallel regions of its own, and prints a digest of each result. What threads
add up in any order, with coplace or without (the means of k-means), is rounded first."""

import hashlib
import os
import warnings

import numpy

os.environ["LOKY_MAX_CPU_COUNT"] = "4"  # it asks for as many threads as it believes to have cores

warnings.simplefilter("ignore", FutureWarning)

from sklearn.cluster import HDBSCAN, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsRegressor

rng = numpy.random.default_rng(5)
points = rng.integers(-8, 9, size=(1500, 4)).astype(float)
points[:500] += 40
points[500:1000] -= 40
target = points[:, 0] * points[:, 1] + points[:, 2]
labels = (target > 0) + (points[:, 3] > 0)


def show(way, *arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(numpy.ascontiguousarray(array).tobytes())
    print(way, digest.hexdigest()[:16], flush=True)


def means(kind, **settings):
    model = kind(n_clusters=3, random_state=0, **settings).fit(points)
    return model.labels_, numpy.round(model.cluster_centers_, 6)


show("k-means, lloyd", *means(KMeans, n_init=2))
show("k-means, elkan", *means(KMeans, n_init=1, algorithm="elkan"))
show("k-means by batches", means(MiniBatchKMeans, n_init=1, batch_size=512)[0])
show("k-means by halves", means(BisectingKMeans)[0])
trees = HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(points, target)
show("boosting, regression", trees.predict(points))
trees = HistGradientBoostingClassifier(max_iter=3, random_state=0, categorical_features=[3]).fit(points + 48, labels)
show("boosting, classes", trees.predict_proba(points + 48))
show("nearest", *pairwise_distances_argmin_min(points, points[:200]))
show("neighbours", KNeighborsClassifier(5).fit(points, labels).predict(points[:500]))
show("radius", RadiusNeighborsRegressor(4).fit(points, target).predict(points[:500]))
show("density", HDBSCAN(min_cluster_size=20).fit(points[::3]).labels_)
show("t-SNE", TSNE(n_components=2, max_iter=250, perplexity=10, random_state=0, init="random").fit_transform(points[::10]))
show("logistic", numpy.round(LogisticRegression(max_iter=20).fit(points, labels > 0).predict_proba(points), 6))
