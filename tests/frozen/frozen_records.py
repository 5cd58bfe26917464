"""Records of what is released, and how they are stored and compared.

A record is one JSON line about one explanation: status, reason code, region, released values,
counts of people, and figures with nine significant digits. It has no sentence, no text of an
exception and no name of a class, so that wording can change while records stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Explanations, GeneralizedCounterfactual, PrototypeCounterfactual

COUNTS = (
    "k",
    "k_desired",
    "k_consistent",
    "k_effective",
    "k_private",
    "private_matches",
    "l",
)
FIGURES = (
    "ncp",
    "pureness",
    "pureness_low",
    "pureness_high",
    "prosecutor_risk",
    "t",
    "gap",
    "disclosure",
)
CODES = ("method", "guarantee", "exact", "optimal", "majority")


class CountingModel:
    """A model that counts its calls, and the rows that all of them were given."""

    def __init__(self, predict: Any) -> None:
        self._predict = predict
        self.n_calls = 0
        self.n_rows = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        self.n_calls += 1
        self.n_rows += len(rows)
        return self._predict(rows)


@dataclass
class Recording:
    """What one setting released, call by call, and what it asked of the model."""

    records: list[dict[str, Any]] = field(default_factory=list)
    model: CountingModel | None = None

    def add(self, call: str, explanations: Explanations) -> None:
        """Add one record per explanation of a call."""
        for position, explanation in enumerate(explanations):
            self.records.append({"call": call, "position": position, **record_of(explanation)})

    def add_plain(self, call: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add records that are plain values already, such as those that a server answers."""
        for position, row in enumerate(rows):
            self.records.append({"call": call, "position": position, **_plain(row)})

    def header(self) -> dict[str, Any]:
        """Return what was asked of the model."""
        if self.model is None:
            return {}
        return {"cost": {"model_calls": self.model.n_calls, "rows_asked": self.model.n_rows}}


def record_of(explanation: Any) -> dict[str, Any]:
    """Return what is recorded of one explanation; None and empty lists are left out."""
    record: dict[str, Any] = {"query": explanation.query, "status": explanation.status}
    if isinstance(explanation, GeneralizedCounterfactual):
        figures = explanation.certificate.to_dict() | explanation.recount.to_dict()
        public = explanation.to_dict()
        for name in ("outcome", "region", "released", "withheld", "unchanged"):
            record[name] = public.get(name)
        for name in ("moved", *COUNTS, *FIGURES, *CODES):
            record[name] = figures.get(name)
    elif isinstance(explanation, PrototypeCounterfactual):
        public = explanation.to_dict()
        record["prototype"] = public["prototype"]
        for name in ("epsilon", "delta", "guarantee", "moved_towards_query", "seeded"):
            record[name] = public["certificate"][name]
    else:
        record["reason"] = explanation.reason
        record["columns"] = list(explanation.columns)
        record["refused_k"] = explanation.refused_k
    return {name: value for name, value in _plain(record).items() if value not in (None, [])}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: no NumPy types, no tuples, dates as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def rounded(value: Any) -> Any:
    """Return a value in which every float has nine significant digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return value


def write(path: Path, recording: Recording) -> None:
    """Store a recording: a header line, then one line per explanation."""
    lines = [recording.header(), *recording.records]
    texts = [json.dumps(rounded(line), ensure_ascii=False) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def differences(path: Path, recording: Recording) -> list[str]:
    """Return how a recording differs from the stored one, in the order of the records.

    Floats may differ in the ninth digit: libraries of other versions add in another order.
    """
    stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    stored[0].pop("made_with", None)
    lines = [rounded(line) for line in (recording.header(), *recording.records)]
    return [
        f"was {json.dumps(before)}\nis  {json.dumps(now)}"
        for before, now in zip_longest(stored, lines)
        if not _is_close(before, now)
    ]


def _is_close(before: Any, now: Any) -> bool:
    """Return whether two values are the same but for the last digit of floats."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [*before] == [*now] and _is_close([*before.values()], [*now.values()])
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_is_close, before, now))
    if isinstance(now, float) and isinstance(before, (int, float)):
        return isclose(before, now, rel_tol=2e-8, abs_tol=1e-9)
    return bool(before == now)


def file_of(setting: str, folder: Path) -> Path:
    """Return the file that has the records of a setting."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", setting.lower()) + ".jsonl")


def regenerate(
    settings: Mapping[str, Callable[[], Recording]], parts: Sequence[str], folder: Path
) -> None:
    """Record settings again, and store and name those that changed; `git diff` shows how.

    Without parts all settings are recorded, otherwise those whose name contains one of the parts.
    """
    for name, record in settings.items():
        if parts and not any(part in name for part in parts):
            continue
        path = file_of(name, folder)
        recording = record()
        if not path.exists() or differences(path, recording):
            write(path, recording)
            print(f"{name}: {len(recording.records)} records have changed")
