"""Several services under one attack: the same people and seed for all, and what came out in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.errors import InputError

SHOWN = ("balanced_accuracy", "tpr_at_0_1", "tpr_at_0_01", "tpr_at_0_001")
"""Figures that stand in the table after the main one, where a report has them."""


def compare(
    owners: Sequence[Owner], sample: Sample, attack: Callable[..., AttackReport], **sizes: Any
) -> list[AttackReport]:
    """Run one attack on several owners, who are trained on the same people with the same seed.

    Parameters
    ----------
    owners : sequence of Owner
        Of different names.
    sample : Sample
    attack : callable
        Takes an owner, the sample and `sizes`, `membership_inference` for example. Who is trained on, and who is
        asked about, must follow from the sample and `sizes` alone, as it does in all attacks of `cfk_plugin.audit`.
    **sizes
        Passed on as they are: seed, shadows and so on.

    Returns
    -------
    list of AttackReport
        In the order of the owners.

    Raises
    ------
    InputError
        If two owners have the same name.
    """
    if len({owner.name for owner in owners}) != len(owners):
        raise InputError("two owners have the same name; reports could not be told apart")
    return [attack(owner, sample, **sizes) for owner in owners]


def side_by_side(reports: Sequence[AttackReport], figures: Sequence[str] = SHOWN) -> pd.DataFrame:
    """Return one row per subject and attack: the success, and figures with their intervals.

    Parameters
    ----------
    reports : sequence of AttackReport
    figures : sequence of str
        Names of figures. A report that lacks one has NaN there; one that no report has makes no column.

    Returns
    -------
    DataFrame
        Columns ``subject``, ``attack``, ``n``, ``main``, ``main_low``, ``main_high``, ``baseline``, and of each figure
        its value and the ends of its 95 % interval, ``<figure>_low`` and ``<figure>_high``; NaN where there are none.
    """
    known = [name for name in figures if any(name in result.figures for report in reports for result in report)]
    rows = []
    for report in reports:
        for result in report:
            row: dict[str, Any] = {"subject": report.subject, "attack": result.attack, "n": result.n}
            row |= {"main": result.main.value, "main_low": result.main.low, "main_high": result.main.high}
            row["baseline"] = result.baseline.value
            for name in (end for figure in known for end in (figure, f"{figure}_low", f"{figure}_high")):
                row[name] = result.figures.get(name, math.nan)
            rows.append(row)
    return pd.DataFrame(rows)


def readable(table: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """Return the same table with each value and its interval in one cell: ``0.66 [0.59, 0.72]``.

    Parameters
    ----------
    table : DataFrame
        Of `side_by_side`.
    digits : int

    Returns
    -------
    DataFrame
        Of text, but for the counts.
    """
    shown = table[["subject", "attack", "n"]].copy()
    for name in table.columns.drop(shown.columns):
        if name.endswith(("_low", "_high")):
            continue
        low, high = (table.get(f"{name}{end}", pd.Series(math.nan, index=table.index)) for end in ("_low", "_high"))
        shown[name] = [_cell(*three, digits) for three in zip(table[name], low, high, strict=True)]
    return shown


def _cell(value: float, low: float, high: float, digits: int) -> str:
    if math.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text if math.isnan(low) else f"{text} [{low:.{digits}f}, {high:.{digits}f}]"
