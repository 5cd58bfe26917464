"""Models that owners train: estimators that take a table as it is, made repeatable by a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


def tabular(features: pd.DataFrame, estimator: Any, numbers: Any = "passthrough") -> Pipeline:
    """Return an estimator that takes the features as they are, text as one column per category.

    Parameters
    ----------
    features : DataFrame
        Of which names and dtypes alone are looked at.
    estimator : scikit-learn estimator
    numbers : scikit-learn transformer or "passthrough"
        For the columns that are no text.

    Returns
    -------
    Pipeline
        Not fitted. A category that it was not fitted on has no column.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    text = [name for name in features if not pd.api.types.is_numeric_dtype(features[name])]
    encode = ColumnTransformer([("text", OneHotEncoder(handle_unknown="ignore"), text)], remainder=numbers)
    return make_pipeline(encode, estimator)


def full_depth_forest(features: pd.DataFrame, trees: int = 50) -> Pipeline:
    """Return a random forest without any limit: it knows nearly every person that it was trained on by heart.

    Parameters
    ----------
    features : DataFrame
        Of which names and dtypes alone are looked at.
    trees : int

    Returns
    -------
    Pipeline
        Not fitted.
    """
    from sklearn.ensemble import RandomForestClassifier

    return tabular(features, RandomForestClassifier(trees, n_jobs=1))


def network(features: pd.DataFrame, width: int = 200, epochs: int = 400) -> Pipeline:
    """Return a network of one hidden layer without regularisation, on standardised numbers.

    Parameters
    ----------
    features : DataFrame
        Of which names and dtypes alone are looked at. Numbers without missing values.
    width : int
    epochs : int
        At most; it stops before when the loss no longer falls.

    Returns
    -------
    Pipeline
        Not fitted.
    """
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    return tabular(features, MLPClassifier((width,), alpha=0.0, max_iter=epochs), StandardScaler())


def seeded(model: Any, seed: int) -> Any:
    """Return a copy of an estimator that is not fitted, with the seed wherever a step takes a ``random_state``."""
    from sklearn.base import clone

    copy = clone(model)
    places = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    return copy.set_params(**dict.fromkeys(places, seed))
