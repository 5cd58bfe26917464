"""A model that stands in for the private one: fitted on differentially private rows, it never sees the table."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

from cfk_plugin.dp.encoding import PublicEncoder
from cfk_plugin.errors import ModelError, quiet

_PLAIN = (type(None), bool, int, float, str, bytes, slice, np.generic, np.dtype, type)
_LISTS = (list, tuple, set, frozenset)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)
_LIBRARIES = frozenset({"builtins", "math", "operator", "numpy", "scipy", "sklearn", "pandas"})
_GIVE = "give a scikit-learn classifier or pipeline that was never fitted"


def check_unfitted(estimator: Any) -> None:
    """Refuse an estimator that could bring along what it learned elsewhere, which no epsilon covers.

    What may pass: estimators that were never fitted and that scikit-learn's `clone` makes anew, whose settings are
    plain values, lists of them, functions of numerical libraries, and such estimators again.

    Raises
    ------
    ModelError
        Otherwise. It names the setting.
    """
    with quiet(f"the surrogate cannot be fitted ({{}}); {_GIVE}", ModelError, let=ModelError):
        if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
            raise ModelError(f"the surrogate cannot be fitted, it is a {type(estimator).__name__}; {_GIVE}")
        _check(estimator, type(estimator).__name__)


def fitted_surrogate(estimator: Any, rows: pd.DataFrame, target: pd.Series) -> Any:
    """Return a fitted copy of an estimator.

    Parameters
    ----------
    estimator : scikit-learn classifier or pipeline
        Of which `check_unfitted` holds.
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

    with quiet(f"the surrogate cannot be fitted ({{}}); {_GIVE}", ModelError):
        return clone(estimator).fit(rows, target)


def _check(value: Any, where: str) -> None:
    if isinstance(value, _PLAIN) or _is_of_a_library(value):
        return
    if isinstance(value, _LISTS):
        for at, each in enumerate(value):
            _check(each, f"{where}[{at}]")
    elif isinstance(value, Mapping):
        for name, each in value.items():
            _check(each, f"{where}[{name!r}]")
    elif hasattr(value, "get_params"):
        _check_estimator(value, where)
    elif type(value).__module__.startswith("sklearn.") and hasattr(value, "__dict__"):  # a splitter, a selector, ...
        for name, each in vars(value).items():
            _check(each, f"{where}.{name}")
    else:
        raise ModelError(
            f"the surrogate's {where} is a {type(value).__name__}, which may hold what was learned from the table; "
            "settings are plain values, functions of numpy, scipy, scikit-learn or pandas, and estimators that were "
            "never fitted"
        )


def _check_estimator(value: Any, where: str) -> None:
    from sklearn.base import BaseEstimator

    if isinstance(value, PublicEncoder) and not value.domain.inferred:
        return
    kind = type(value)
    own = getattr(kind, "__sklearn_clone__", BaseEstimator.__sklearn_clone__)
    if own is not BaseEstimator.__sklearn_clone__:
        raise ModelError(f"the surrogate's {where} is a {kind.__name__}, of which a clone is no new one; {_GIVE}")
    if _is_fitted(value):
        raise ModelError(f"the surrogate's {where} is fitted already; {_GIVE}, as sklearn.base.clone makes one")
    for name, setting in value.get_params(deep=False).items():
        if (name == "prefit" and setting is not False) or (isinstance(setting, str) and setting == "prefit"):
            raise ModelError(f"the surrogate's {where}.{name} asks for an estimator that is fitted already; {_GIVE}")
        _check(setting, f"{where}.{name}")


def _is_fitted(estimator: Any) -> bool:
    """Say whether an estimator has learned anything: by scikit-learn's sign, a name that ends with an underscore."""
    if any(name.endswith("_") and not name.startswith("__") for name in getattr(estimator, "__dict__", {})):
        return True
    if hasattr(estimator, "steps") or not hasattr(estimator, "__sklearn_is_fitted__"):
        return False  # the steps of a pipeline are looked at one by one
    stateless = hasattr(estimator, "__sklearn_tags__") and not estimator.__sklearn_tags__().requires_fit
    return not stateless and bool(estimator.__sklearn_is_fitted__())


def _is_of_a_library(value: Any) -> bool:
    """Say whether a value is a function that a numerical library has under that name."""
    if not isinstance(value, _FUNCTIONS):
        return False
    homes = [np, scipy.special] if isinstance(value, np.ufunc) else [sys.modules.get(str(value.__module__))]
    named = any(getattr(home, value.__name__, None) is value for home in homes)
    return named and all(home is not None and home.__name__.partition(".")[0] in _LIBRARIES for home in homes)
