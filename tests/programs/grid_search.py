"""A grid search with two worker processes, each of which trains with OpenMP. Prints its result."""

import numpy
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV

if __name__ == "__main__":
    rng = numpy.random.default_rng(1)
    features = rng.normal(size=(4000, 8))
    target = features[:, 0] * features[:, 1] + numpy.sin(features[:, 2])
    grid = {"max_leaf_nodes": [15, 31], "learning_rate": [0.1, 0.2]}
    search = GridSearchCV(HistGradientBoostingRegressor(random_state=0, max_iter=40), grid, cv=2, n_jobs=2)
    search.fit(features, target)
    print("result", search.best_params_, search.cv_results_["mean_test_score"].tobytes().hex())
