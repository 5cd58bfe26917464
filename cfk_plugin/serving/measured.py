"""What an evaluation measured: metrics, tables and plots, of explanations or of a protected model's records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.data.region import Interval, part_to_text
from cfk_plugin.errors import InputError
from cfk_plugin.plots import plot_ncp_by_attribute, plot_risk
from cfk_plugin.records.tally import figures
from cfk_plugin.release.explanations import ncp_table, risk_by_group_size
from cfk_plugin.release.results import PrototypePolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cfk_plugin.data.population import Population
    from cfk_plugin.release.explanations import Explanations

Record = Mapping[str, Any]

_BEFORE, _AFTER = ("query", "status", "reason"), ("k", "ncp", "pureness")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Measured:
    """Figures, tables and plots; nothing in it that may not leave, but exact class sizes.

    Attributes
    ----------
    figures : mapping
        Name to figure; None where it is over nothing.
    tables : mapping
        Name to table.
    plots : mapping
        Name to a function that draws on axes.
    text : str
        The whole result as JSON.
    """

    figures: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    plots: Mapping[str, Callable[..., Axes]]
    text: str

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that are numbers, as ``cfk/NAME``."""
        numbers = {name: value for name, value in self.figures.items() if isinstance(value, (int, float))}
        return {f"cfk/{name}": float(value) for name, value in numbers.items()}

    @classmethod
    def of_explanations(cls, explanations: Explanations, population: Population) -> Measured:
        """Measure what protecting an explainer released; of prototypes there are no classes to tabulate."""
        if isinstance(explanations.policy, PrototypePolicy):
            return cls(explanations.summary(), {"released": explanations.to_frame()}, {}, explanations.to_json())
        return cls(
            explanations.summary(),
            {
                "released": explanations.to_frame(),
                "risk_by_group_size": risk_by_group_size(explanations),
                "ncp_by_attribute": ncp_table(explanations, population),
            },
            {
                "risk": partial(plot_risk, explanations),
                "ncp_by_attribute": partial(plot_ncp_by_attribute, explanations, population),
            },
            explanations.to_json(),
        )

    @classmethod
    def of_records(cls, answer: object, k: int | None) -> Measured:
        """Measure what a protected model answered: what its records say, no more.

        Parameters
        ----------
        answer : list of dict, or DataFrame
            See `cfk_plugin.serving.records.record_of`.
        k : int or None
            The floor of the model; None for one that answers with prototypes.

        Raises
        ------
        InputError
            If it is no list of records, or one of them is released without k although the model has a floor.
        """
        records = answer.to_dict("records") if isinstance(answer, pd.DataFrame) else answer
        if not isinstance(records, list) or not all(isinstance(r, Mapping) and "status" in r for r in records):
            raise InputError("the protected model did not answer with records; was it logged by log_protected_model?")
        released = [record for record in records if record["status"] == "released"]
        if k is None:
            return cls(_counts(records), {"released": _frame(records)}, {}, json.dumps(records, ensure_ascii=False))
        if any(record["k"] is None or pd.isna(record["k"]) for record in released):
            raise InputError("the protected model has a k and released a record without; its bundle is not whole")
        sizes = [int(record["k"]) for record in released]
        return cls(
            _figures(records, sizes, k),
            {"released": _frame(records), "risk_by_group_size": risk_by_group_size(sizes)},
            {"risk": partial(plot_risk, sizes, k=k)},
            json.dumps(records, ensure_ascii=False),
        )


def _counts(records: Sequence[Record]) -> dict[str, float]:
    released = sum(record["status"] == "released" for record in records)
    counts: dict[str, float] = {"asked": len(records), "released": released, "suppressed": len(records) - released}
    return counts | ({"suppressed_rate": counts["suppressed"] / len(records)} if records else {})


def _figures(records: Sequence[Record], sizes: Sequence[int], k: int) -> dict[str, float]:
    """Return the figures of `Explanations.summary` that records have."""
    released = [record for record in records if record["status"] == "released"]
    columns = {name: [float(record[name]) for record in released] for name in ("ncp", "pureness")}
    known = figures({**columns, "k": sizes, "prosecutor_risk": [1 / size for size in sizes]})
    counts = _counts(records) | {"released_native": sum(size < k for size in sizes)}
    return counts | {name: value for name, value in known.items() if value is not None}


def _frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as the table that `Explanations.to_frame` is."""
    cells = [{feature["name"]: _cell(feature) for feature in record["features"]} for record in records]
    rows = [
        {name: record[name] for name in (*_BEFORE, *_AFTER)} | features
        for record, features in zip(records, cells, strict=True)
    ]
    names = dict.fromkeys(name for features in cells for name in features)
    return pd.DataFrame(rows, columns=[*_BEFORE, *names, *_AFTER]).astype({"k": "Int64"})


def _cell(feature: Record) -> str:
    """Write one feature of a record as the text of a table cell."""
    kind, values = feature["kind"], list(feature["values"])
    if kind == "withheld":
        return "withheld"
    if kind == "set":
        return part_to_text(frozenset([*values, *([None] if feature["missing"] else [])]))
    if kind == "number":
        return part_to_text(Interval(_number(feature["low"]), _number(feature["high"]), feature["missing"]))
    return "–".join(dict.fromkeys(values))


def _number(value: float | None) -> float | None:
    return int(value) if value is not None and float(value).is_integer() else value
