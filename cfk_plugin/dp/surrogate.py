"""A model that stands in for the private one: fitted on differentially private rows, it never sees the table."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cfk_plugin.errors import ModelError


def fitted_surrogate(estimator: Any, rows: pd.DataFrame, target: pd.Series) -> Any:
    """Return a fitted copy of an estimator.

    Parameters
    ----------
    estimator : scikit-learn classifier or pipeline
        Not fitted; a fitted one would carry what it learned from elsewhere only in its settings, as it is cloned.
    rows : DataFrame
        Features of the differentially private rows.
    target : Series
        Their outcomes, drawn with them.

    Raises
    ------
    ModelError
        If it cannot be cloned or fitted. The message has the class of the failure alone.
    """
    from sklearn.base import clone

    failure = ""
    try:
        return clone(estimator).fit(rows, target)
    except Exception as error:  # noqa: BLE001 - whatever it is, its text is not repeated
        failure = type(error).__name__
    raise ModelError(f"the surrogate cannot be fitted ({failure}); give a scikit-learn classifier or pipeline")
