"""The encoding: rows as numbers in [0, 1] by their declared domain alone, and back."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from cfk_plugin.dp.public import PublicColumn, PublicDomain, numbers_of
from cfk_plugin.errors import InputError


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Encode rows as numbers in [0, 1] by what is declared of their columns; a scikit-learn transformer.

    A number is scaled by its declared bounds, and one outside of them counts as the nearest bound. A category or level
    is a one-hot vector over all declared ones. A missing value, where declared, has an input of its own; a missing
    number is 0 beside it. `fit` learns nothing, so the encoding itself says nothing of any row.

    Parameters
    ----------
    domain : PublicDomain

    Examples
    --------
    >>> from cfk_plugin import Population, Schema
    >>> rows = pd.DataFrame({"age": [20, 60], "city": ["A", "B"]})
    >>> schema = Schema.from_frame(
    ...     rows, quasi_identifiers=["age"], bounds={"age": (0, 100)}, categories={"city": ["A", "B"]}, nullable=[]
    ... )
    >>> encoder = PublicEncoder(PublicDomain.of(Population.from_frame(rows, schema)))
    >>> encoder.transform(rows).tolist()
    [[0.2, 1.0, 0.0], [0.6, 0.0, 1.0]]
    """

    def __init__(self, domain: PublicDomain) -> None:
        self.domain = domain

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show sizes."""
        return f"PublicEncoder({len(self.domain.columns)} columns, {self.n_inputs} inputs)"

    def __sklearn_is_fitted__(self) -> bool:
        """Say that there is nothing to fit."""
        return True

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that it takes, in order."""
        return np.array(self.domain.names, dtype=object)

    @property
    def n_inputs(self) -> int:
        """Number of encoded inputs."""
        return sum(map(_width, self.domain.columns))

    @property
    def layout(self) -> tuple[tuple[Any, ...], ...]:
        """What each column is encoded by: two encoders with the same layout give the same numbers."""
        return tuple(
            (c.name, c.is_numeric, c.size, (*c.edges[[0, -1]],) if c.is_numeric else c.values)
            for c in self.domain.columns
        )

    def fit(self, X: pd.DataFrame, y: Any = None) -> PublicEncoder:  # noqa: ARG002 - scikit-learn's signature
        """Do nothing: what is needed was declared."""
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame
            With every column of the domain; others are ignored.

        Returns
        -------
        float64 array, shape (n_rows, n_inputs)
            In [0, 1].

        Raises
        ------
        InputError
            If columns are missing, or hold values that are not declared. It names the columns.
        """
        if not isinstance(X, pd.DataFrame):
            raise InputError(f"the encoder takes a pandas DataFrame; got {type(X).__name__}")
        if lost := [name for name in self.domain.names if name not in X.columns]:
            raise InputError(f"the table lacks the features {', '.join(lost)}")
        codes = self.domain.codes(X)
        if undeclared := [name for j, name in enumerate(self.domain.names) if bool((codes[:, j] < 0).any())]:
            raise InputError(
                f"columns {', '.join(undeclared)} hold values that the schema does not declare: add them to its "
                "categories, levels or nullable, or remove the rows"
            )
        parts = [_encoded(c, X[c.name], codes[:, j]) for j, c in enumerate(self.domain.columns)]
        return np.column_stack(parts)

    def decode(self, encoded: NDArray[np.float64]) -> pd.DataFrame:
        """Return the rows nearest to encoded ones, in the dtypes that the model takes.

        The largest of the inputs of a category wins, the first one on a tie; a number is missing where the input for
        that is above one half; whole numbers and dates are rounded.

        Parameters
        ----------
        encoded : float64 array, shape (n_rows, n_inputs)

        Returns
        -------
        DataFrame
        """
        starts = list(accumulate(map(_width, self.domain.columns), initial=0))
        parts = zip(self.domain.columns, pairwise(starts), strict=True)
        return pd.DataFrame({c.name: _decoded(c, encoded[:, start:stop]) for c, (start, stop) in parts})


def _width(column: PublicColumn) -> int:
    return 1 + column.attribute.nullable if column.is_numeric else column.size


def _encoded(column: PublicColumn, values: pd.Series, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    if not column.is_numeric:
        return np.eye(column.size)[codes]
    missing = codes >= column.listed
    scaled = (np.where(missing, column.edges[0], numbers_of(values)) - column.edges[0]) / column.width
    clipped = np.clip(scaled, 0, 1)
    return np.column_stack([clipped, missing]) if column.attribute.nullable else clipped[:, None]


def _decoded(column: PublicColumn, encoded: NDArray[np.float64]) -> pd.Series:
    if not column.is_numeric:
        return column.chosen(encoded.argmax(axis=1))
    numbers = np.clip(column.edges[0] + encoded[:, 0] * column.width, column.edges[0], column.edges[-1])
    if column.is_whole:
        numbers = np.clip(np.round(numbers), np.ceil(column.edges[0]), np.floor(column.edges[-1]))
    drawn = pd.Series(numbers)
    return column.typed(drawn.mask(encoded[:, 1] > 0.5) if column.attribute.nullable else drawn)
