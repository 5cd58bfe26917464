"""The changes that one call to `explain` permits, read from its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf, isfinite
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Codes, Column, Floats
from cfk_plugin.data.constraints import Change, Limits, Permitted
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import HostOnly, InputError, did_you_mean, quiet


@dataclass(frozen=True, eq=False, repr=False)
class CallRules(HostOnly):
    """The changes that one call permits, in addition to the rules of the schema.

    Attributes
    ----------
    fixed : frozenset of str
        Features that must not change.
    permitted : mapping of feature to Permitted
    max_changes : int, optional
        The largest number of features that may change; None for any number.
    is_listed : bool
        Whether the call lists the features that may change.
    """

    fixed: frozenset[str] = frozenset()
    permitted: Mapping[str, Permitted] = field(default_factory=dict)
    max_changes: int | None = None
    is_listed: bool = False

    @classmethod
    def read(
        cls,
        codes: Codes,
        features_to_vary: Any = "all",
        permitted_range: Any = None,
        max_changes: int | None = None,
    ) -> CallRules:
        """Read the arguments of `KAnonymizer.explain` with these names.

        Raises
        ------
        InputError
            If an argument names something other than features, is empty, or contradicts the schema.
        """
        free = _features_to_vary(features_to_vary, codes.names)
        ranges = _mapping(permitted_range)
        _check_are_features("features_to_vary", free, codes.names)
        _check_are_features("permitted_range", ranges, codes.names)
        column_of = dict(zip(codes.names, codes.columns, strict=True))
        permitted = {str(name): _permitted(column_of[name], ranges[name]) for name in ranges}
        fixed = frozenset(codes.names) - frozenset(free)
        is_listed = features_to_vary is not None and not isinstance(features_to_vary, str)
        return cls(fixed, permitted, max_changes, is_listed)

    def decided(self, codes: Codes) -> frozenset[str]:
        """Return the features whose changes the schema or the call restricts.

        If the call lists the features that may change, it has decided about all of them.
        """
        if self.is_listed:
            return frozenset(codes.names)
        restricted = [column.name for column in codes.columns if column.attribute.change != "any"]
        return frozenset(restricted) | self.permitted.keys()

    def restricts(self, codes: Codes) -> bool:
        """Return whether the schema or the call restricts any change."""
        has_never_advised = any(column.attribute.never_advised for column in codes.columns)
        is_restricted = has_never_advised or self.max_changes is not None or len(codes.rules) > 0
        return bool(self.decided(codes) or self.fixed or is_restricted)

    def limits(self, codes: Codes, queries: Floats) -> Limits:
        """Return the permitted values of answers to queries, shape (n_queries, n_features)."""
        change: dict[str, Change] = dict.fromkeys(self.fixed, "never")
        return Limits.of(codes, queries, change, self.permitted, max_changes=self.max_changes)


def most_changes(max_changes: Any) -> int | None:
    """Return the largest number of changes that a call permits, or None for any number.

    Raises
    ------
    InputError
        If it is neither None nor a whole number of at least 1.
    """
    if max_changes is None:
        return None
    return whole_number("max_changes", max_changes)


def _features_to_vary(setting: Any, features: Sequence[str]) -> Sequence[str]:
    """Return the features that a call lists, or all features if it lists none.

    The names are not compared with the schema.
    """
    if setting is None:
        return features
    if isinstance(setting, str):
        if setting == "all":
            return features
        raise InputError('features_to_vary must be "all" or a list of features, not one string')
    names = list(setting) if isinstance(setting, Iterable) else []
    if not names:
        raise InputError(
            'features_to_vary must be "all" or a list of at least one feature: without one, nothing'
            " can change"
        )
    return names


def _mapping(permitted_range: Any) -> dict[Any, Any]:
    """Return `permitted_range` as a dict; raise an InputError if it is not a mapping."""
    if permitted_range is None:
        return {}
    if not isinstance(permitted_range, Mapping):
        raise InputError(
            "permitted_range must be a mapping of feature to range, got"
            f" {type(permitted_range).__name__}"
        )
    return dict(permitted_range)


def _check_are_features(parameter: str, names: Iterable[str], features: Sequence[str]) -> None:
    """Raise an InputError if one of the names is not a feature."""
    unknown = [str(name) for name in names if name not in features]
    if unknown:
        raise InputError(
            f"{parameter}: not features of the schema: {', '.join(unknown)}; features are"
            f" {', '.join(features)}{did_you_mean(unknown, features)}"
        )


def _permitted(column: Column, setting: Any) -> Permitted:
    """Return the range or the values that a call permits for one column."""
    parameter = f"permitted_range of {column.name!r}"
    if isinstance(setting, (str, Mapping)) or not isinstance(setting, Iterable):
        form = "[low, high]" if column.is_numeric else "a list of values"
        raise InputError(f"{parameter} must be {form}")
    values = list(setting)
    if column.is_numeric:
        return _permitted_range(column, values, parameter)
    return _permitted_values(column, values, parameter)


def _permitted_values(column: Column, values: list[Any], parameter: str) -> Permitted:
    """Return a mask of a column's values, shape (n_values,)."""
    with quiet(f"{parameter} cannot be read", InputError):
        codes = column.encode(pd.Series(values, dtype=object))
    if not len(codes):
        raise InputError(f"{parameter} is empty; list at least one value")
    n_unknown = int(np.isnan(codes).sum())
    if n_unknown:
        raise InputError(
            f"{parameter} has {n_unknown} values that the population does not have; remove them"
        )
    return np.isin(np.arange(len(column.values)), codes)


def _permitted_range(column: Column, values: list[Any], parameter: str) -> tuple[float, float]:
    """Return the lowest and the highest permitted number."""
    with quiet(f"{parameter} must be two numbers or dates", InputError):
        low, high = column.encode(pd.Series(values, dtype=object)).tolist()
        if column.decimals == 0 and column.kind == "number":
            low = float(ceil(low))
            high = float(floor(high))
    if not (isfinite(low) and isfinite(high)):
        raise InputError(
            f"{parameter} must be two finite numbers or dates, the lowest and the highest"
        )
    least, most = column.attribute.bounds or (-inf, inf)
    if low > high:
        raise InputError(f"{parameter} contains no value of the column; write the lower end first")
    if low > most or high < least:
        raise InputError(
            f"{parameter} is outside of the bounds that the schema declares; choose a range inside"
        )
    return low, high
