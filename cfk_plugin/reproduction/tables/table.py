"""A table of the published experiments, whatever place it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import pandas as pd

from cfk_plugin.errors import InputError

NAMES = ("adult", "cmc", "german", "heart", "hospital", "informs")
"""Tables of the paper, in the order in which it prints them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Rows and what each column is for. Host side only: its `repr` shows counts.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    frame : DataFrame
        The features and the target. Columns that are no numbers hold text; missing values are missing.
    features, quasi_identifiers : tuple of str
        Columns to model with; those of them that are publicly known.
    sensitive : str
        The column whose rarest category is the minority group; a column of `frame`.
    target : str
        The column to predict.
    desired : hashable
        The value of the target that a counterfactual is to reach.
    source : str
        Where the rows are from, in one line, as a reader may look it up.
    """

    name: str
    frame: pd.DataFrame
    features: tuple[str, ...]
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    target: str
    desired: Hashable
    source: str

    def __post_init__(self) -> None:
        """Check that the columns are there and the desired outcome occurs."""
        wanted = {*self.features, self.sensitive, self.target}
        if lost := sorted(wanted - set(self.frame.columns)):
            raise InputError(f"{self.name}: the table lacks the column {', '.join(lost)}")
        if strange := sorted(set(self.quasi_identifiers) - set(self.features)):
            raise InputError(f"{self.name}: quasi-identifiers that are no features: {', '.join(strange)}")
        if not (self.frame[self.target] == self.desired).any():
            raise InputError(f"{self.name}: no row of {self.target} has the desired outcome; check the description")

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Table({self.name}, {len(self.frame)} rows, {len(self.features)} features)"

    @property
    def sha256(self) -> str:
        """Digest of rows and roles: the same for whoever has the same table."""
        roles = repr((self.features, self.quasi_identifiers, self.sensitive, self.target, self.desired))
        return hashlib.sha256((roles + self.frame.to_csv(index=False)).encode()).hexdigest()
