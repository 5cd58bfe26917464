"""From rows that answer queries to the result that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from cfk_plugin.about import About, Call
from cfk_plugin.counterfactual import Entry, Suppressed
from cfk_plugin.environment import environment_of
from cfk_plugin.explanations import Explanations
from cfk_plugin.population_facts import declared
from cfk_plugin.prototype import PrototypeCertificate, PrototypeCounterfactual, PrototypePolicy
from cfk_plugin.tracking import RunLogger, observe

if TYPE_CHECKING:
    from cfk_plugin.schema import Schema


def entries_of(
    rows: pd.DataFrame, refused: Sequence[str | None], features: Sequence[str], certificate: PrototypeCertificate
) -> list[Entry]:
    """Return one entry per query: its row, or why there is none.

    Parameters
    ----------
    rows : DataFrame
        One per query.
    refused : sequence of str or None
        A reason, for queries whose row does not answer.
    features : sequence of str
    certificate : PrototypeCertificate
    """
    columns = [rows[name].tolist() for name in features]
    return [
        PrototypeCounterfactual(query, dict(zip(features, row, strict=True)), certificate)
        if reason is None
        else Suppressed(query, reason)
        for query, (reason, *row) in enumerate(zip(refused, *columns, strict=True))
    ]


def result_of(
    entries: list[Entry],
    policy: PrototypePolicy,
    schema: Schema,
    call: Call,
    track: bool | RunLogger,
    *,
    seed: int | None,
    spent: float = 0.0,
) -> Explanations:
    """Return entries as a result; all withheld, where a record was to be kept of them and cannot be.

    Parameters
    ----------
    entries : list of Entry
    policy : PrototypePolicy
    schema : Schema
        Its declarations are told; nothing that was counted is.
    call : Call
    track : bool or RunLogger
    seed : int, optional
    spent : float
        Epsilon that was spent so far; 0 where nothing is guaranteed.
    """
    environment = {**environment_of(seed=seed), "generator": policy.method}
    about = About(declared(schema), environment).of_call(call, [entry.query for entry in entries])
    provenance: dict[str, str] = {"method": policy.method, "generator": policy.method}
    provenance |= {"epsilon_spent": str(spent)} if spent else {}

    def result(of: list[Entry]) -> Explanations:
        return Explanations(of, policy=policy, columns=schema.features, provenance=provenance, about=about)

    if observe(given := result(entries), track):
        return given
    return result([Suppressed(entry.query, "not_recorded") for entry in entries])
