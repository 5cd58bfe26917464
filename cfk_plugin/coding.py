"""Coding: records as codes and numbers in a population's terms. It knows domains and no row, so it may travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import keyed
from cfk_plugin.cells import collapse
from cfk_plugin.columns import conform, table_of
from cfk_plugin.domain import Domain
from cfk_plugin.schema import Schema


@dataclass(frozen=True, eq=False)
class Coding:
    """Reads tables by the domains of a population.

    Attributes
    ----------
    schema : Schema
    domains : mapping
        Feature to `Domain`.
    """

    schema: Schema
    domains: Mapping[str, Domain]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Coding({len(self.domains)} features)"

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        coded = [self.domains[name].encode(frame[name]) for name in self.schema.features]
        return np.column_stack([codes for codes, _ in coded]), np.column_stack([numbers for _, numbers in coded])

    def quasi(self, frame: pd.DataFrame) -> list[NDArray[np.int32]]:
        """Return the codes of each quasi-identifier of a table."""
        return [self.domains[name].encode(frame[name])[0] for name in self.schema.quasi_identifiers]

    def collapse(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the cells of a table that the domains were learned from, and the cell of each row."""
        return collapse(self.quasi(frame), [self.domains[name].size for name in self.schema.quasi_identifiers])

    def conform(self, frame: pd.DataFrame, codes: NDArray[np.int32] | None = None) -> pd.DataFrame:
        """Return the features of a table in the training table's order, dtypes and spelling, where values survive it.

        Parameters
        ----------
        frame : DataFrame
        codes : int32 array, shape (n, n_features), optional
            Its codes, where they are known already.
        """
        known = self.encode(frame)[0] if codes is None else codes
        return table_of(
            {
                name: self.domains[name].restore(known[:, j])
                if (known[:, j] >= 0).all()
                else conform(frame[name], self.domains[name].dtype)
                for j, name in enumerate(self.schema.features)
            }
        )


@dataclass(frozen=True, eq=False, repr=False)
class KeyedOrder:
    """Lines records up by numbers that need the key to compute; it travels with the key to whom is to compute them.

    Attributes
    ----------
    coding : Coding
    key : bytes
    """

    coding: Coding
    key: bytes

    def __call__(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return the keyed number of each record, coded (`Coding.encode`)."""
        names, domains = self.coding.schema.features, self.coding.domains
        tokens = [domains[name].tokens(codes[:, j], numbers[:, j]) for j, name in enumerate(names)]
        return keyed.order(self.key, np.column_stack(tokens))

    def of(self, frame: pd.DataFrame) -> NDArray[np.uint64]:
        """Return the keyed number of each record of a table."""
        return self(*self.coding.encode(frame))
