"""From rows that answer queries to the result that leaves."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from cfk_plugin.counterfactual import Entry, Suppressed
from cfk_plugin.explanations import Explanations
from cfk_plugin.prototype import PrototypeCertificate, PrototypeCounterfactual, PrototypePolicy
from cfk_plugin.tracking import RunLogger, observe


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
    entries: list[Entry], policy: PrototypePolicy, features: Sequence[str], track: bool | RunLogger, spent: float = 0.0
) -> Explanations:
    """Return entries as a result; all withheld, where a record was to be kept of them and cannot be."""
    result = _result(entries, policy, features, spent)
    if observe(result, track):
        return result
    return _result([Suppressed(entry.query, "not_recorded") for entry in entries], policy, features, spent)


def _result(entries: list[Entry], policy: PrototypePolicy, features: Sequence[str], spent: float) -> Explanations:
    about: dict[str, str] = {"method": policy.method, "generator": policy.method}
    if spent:
        about["epsilon_spent"] = str(spent)
    return Explanations(entries, policy=policy, columns=features, provenance=about)
