"""People with their true outcomes, of whom some are trained on and others are not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.errors import InputError

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True, repr=False, eq=False)
class Sample:
    """People drawn from one population. Host side only: its `repr` shows counts.

    Attributes
    ----------
    X : DataFrame, shape (n, n_features)
        Features alone, one row per person; its index is 0 to n - 1.
    y : bool array, shape (n,)
        Whether a person's true outcome is the desired one.

    Raises
    ------
    InputError
        If both do not have one entry per person.
    """

    X: pd.DataFrame
    y: Mask

    def __post_init__(self) -> None:
        """Check the lengths and number the rows."""
        y = np.asarray(self.y, dtype=bool).reshape(-1)
        if len(y) != len(self.X):
            raise InputError(f"{len(y)} outcomes for {len(self.X)} people; give one each")
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "X", self.X.reset_index(drop=True))

    def __len__(self) -> int:
        """Return the number of people."""
        return len(self.X)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Sample({len(self)} people, {self.X.shape[1]} features)"

    def fingerprint(self) -> str:
        """Return a digest of people, outcomes and column names: what was measured on others is told apart by it.

        It stays with the table: who can guess the people can check the guess.
        """
        digest = hashlib.sha256("\x1f".join(map(str, self.X.columns)).encode())
        if plain(self.X):
            digest.update(np.ascontiguousarray(self.X.to_numpy(dtype=np.float64)).data)
        else:
            for name in self.X.columns:
                codes = pd.util.hash_pandas_object(self.X[name].astype(object).astype(str), index=False)
                digest.update(codes.to_numpy(dtype=np.uint64).data)
        digest.update(np.ascontiguousarray(self.y).data)
        return digest.hexdigest()

    def take(self, rows: Rows | Mask) -> Sample:
        """Return the people at some positions, or where a mask is true."""
        at = np.arange(len(self))[rows]
        return Sample(self.X.take(at), self.y[at])


def plain(table: pd.DataFrame) -> bool:
    """Say whether all columns are numpy's numbers: such a table is read as one array, however wide it is."""
    return all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in set(table.dtypes))
