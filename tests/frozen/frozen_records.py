"""Records of what is released, how they are stored, and how two recordings are compared.

A record is one JSON line about one explanation: status, reason code, region, released values,
counts of people, and figures with nine significant digits. It holds no sentence, no text of an
exception and no name of a class, so that wording can change while records stay.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Explanations, GeneralizedCounterfactual, PrototypeCounterfactual

RECORDS = Path(__file__).parent / "records"

MOST_SHOWN = 12
"""Differences of one setting that `regenerate` prints."""

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

SHARED_LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy")
"""Libraries that can change a digit of any figure."""


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
    libraries: tuple[str, ...] = SHARED_LIBRARIES
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
        """Return the versions that the recording was made with, and what was asked of the model."""
        made_with = {"python": platform.python_version(), "machine": platform.machine()}
        for library in self.libraries:
            made_with[library] = version(library)
        header: dict[str, Any] = {"made_with": made_with}
        if self.model is not None:
            header["cost"] = {"model_calls": self.model.n_calls, "rows_asked": self.model.n_rows}
        return header


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


@dataclass(frozen=True)
class StoredRecording:
    """A recording as it was read from a file."""

    header: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]


def read(path: Path) -> StoredRecording:
    """Read a stored recording."""
    header, *records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return StoredRecording(header, records)


def differences(stored: StoredRecording, recording: Recording) -> list[str]:
    """Return how a recording differs from the stored one, in words, in the order of the records.

    With the versions that the stored records were made with, figures must be equal in all nine
    digits. With others they may differ by 1e-9 (relative above 1, absolute below) beside the
    rounding of the stored figure.
    """
    header = recording.header()
    is_same_version = stored.header["made_with"] == header["made_with"]
    messages: list[str] = []
    for before, now in zip_longest(stored.records, recording.records):
        if before is None:
            messages.append(f"{_place(now)}: there was no such explanation before")
        elif now is None:
            messages.append(f"{_place(before)}: the explanation is missing now")
        else:
            messages.extend(_record_differences(before, now, is_exact=is_same_version))
    for name, words in (("model_calls", "calls of the model"), ("rows_asked", "rows asked about")):
        before = stored.header.get("cost", {}).get(name)
        now = header.get("cost", {}).get(name)
        if before != now:
            messages.append(f"cost: {words} were {before}, are {now}")
    return messages


def _record_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, is_exact: bool
) -> list[str]:
    place = _place(now)
    if _place(before) != place:
        return [f"{_place(before)}: in its place there is {place}"]
    if _status(before) != _status(now):
        return [f"{place}: was {_status(before)}, is {_status(now)}"]
    messages = []
    for name in dict.fromkeys([*before, *now]):
        messages.extend(_field_differences(name, before.get(name), now.get(name), is_exact))
    return [f"{place}: {message}" for message in messages]


def _field_differences(name: str, before: Any, now: Any, is_exact: bool) -> list[str]:
    if _is_equal(before, now, is_exact):
        return []
    is_by_attribute = name in ("region", "released", "features", "prototype")
    if is_by_attribute and isinstance(before, Mapping) and isinstance(now, Mapping):
        messages = []
        for attribute in dict.fromkeys([*before, *now]):
            words = f"{name} of {attribute}"
            part_before = before.get(attribute)
            part_now = now.get(attribute)
            messages.extend(_field_differences(words, part_before, part_now, is_exact))
        return messages
    return [f"{name} was {_in_words(before)}, is {_in_words(rounded(now))}"]


def _in_words(value: Any) -> str:
    """Write a value, or the part of a region, as a person would."""
    if isinstance(value, Mapping) and "values" in value:
        return "one of " + ", ".join(map(str, value["values"]))
    if isinstance(value, Mapping) and "low" in value:
        return f"{value['low']} to {value['high']}"
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _is_equal(before: Any, now: Any, is_exact: bool) -> bool:
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        names = {*before, *now}
        return all(_is_equal(before.get(name), now.get(name), is_exact) for name in names)
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return all(_is_equal(one, other, is_exact) for one, other in zip(before, now, strict=True))
    is_number = isinstance(now, float) and isinstance(before, (int, float))
    if is_exact or not is_number:
        return bool(before == rounded(now))
    if np.isnan(before) and np.isnan(now):
        return True
    rounding = 5e-9 * abs(before)  # at most half a unit of the ninth digit
    return abs(now - before) <= 1e-9 * max(1.0, abs(now)) + rounding


def _place(record: Mapping[str, Any]) -> str:
    return f"{record['call']}, explanation {record['position']}"


def _status(record: Mapping[str, Any]) -> str:
    reason = record.get("reason")
    status = str(record.get("status"))
    return status if reason is None else f"{status} ({reason})"


def file_of(setting: str, folder: Path = RECORDS) -> Path:
    """Return the file that has the records of a setting."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", setting.lower()) + ".jsonl")


def regenerate(
    settings: Mapping[str, Callable[[], Recording]], parts: Sequence[str], folder: Path = RECORDS
) -> int:
    """Record settings again, store what changed, and print it; return the exit code.

    Without parts all settings are recorded, otherwise those whose name contains one of the parts.
    """
    names = [name for name in settings if not parts or any(part in name for part in parts)]
    if not names:
        print(f"no setting has a name with {' or '.join(parts)}")
        return 2
    folder.mkdir(exist_ok=True)
    n_changed = 0
    for name in names:
        path = file_of(name, folder)
        recording = settings[name]()
        if not path.exists():
            write(path, recording)
            print(f"{name}: {len(recording.records)} records, new")
            continue
        stored = read(path)
        changes = differences(stored, recording)
        if changes or stored.header["made_with"] != recording.header()["made_with"]:
            write(path, recording)
        if not changes:
            continue
        n_changed += 1
        print(f"{name}: {len(changes)} differences")
        for change in changes[:MOST_SHOWN]:
            print(f"  {change}")
        if len(changes) > MOST_SHOWN:
            print(f"  and {len(changes) - MOST_SHOWN} more")
    print(f"{n_changed} of {len(names)} settings changed")
    return 0
