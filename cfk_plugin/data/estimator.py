"""scikit-learn's base of estimators, with types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

__all__ = ["BaseEstimator"]

if TYPE_CHECKING:  # scikit-learn has no types

    class BaseEstimator:
        """The base class of estimators that `sklearn.base.clone` can copy."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...

else:
    from sklearn.base import BaseEstimator
