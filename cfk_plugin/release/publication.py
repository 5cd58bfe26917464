"""A catalogue as a publication: its entries as they are released, as one table that can be read back and recounted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.model import Outcome
from cfk_plugin.data.region import Interval, part_from_dict, part_of, part_to_text
from cfk_plugin.errors import InputError
from cfk_plugin.release.released_file import Finding
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual

_FIGURES = ("k", "ncp", "pureness", "pureness_low", "pureness_high", "exact")
_FLOORS = ("k_desired_at_least", "k_consistent_at_least")
_SAID = ("outcome", "region", "released", "withheld")
_ENTRY, _CATALOGUE = "entry", "catalogue"  # JSON: an entry as files have it, and what all entries have in common
_OWN = ("outcome", *_FIGURES, *_FLOORS, _ENTRY, _CATALOGUE)


def publish(entries: Iterable[Entry]) -> list[GeneralizedCounterfactual]:
    """Return what leaves of a catalogue's entries, each once, in an order that follows from what leaves alone."""
    distinct = {
        (entry.certificate.ncp, json.dumps([said[name] for name in _SAID], sort_keys=True)): entry
        for entry in entries
        if isinstance(entry, GeneralizedCounterfactual)
        for said in [entry.to_dict()]
    }
    return [replace(distinct[key], query=i) for i, key in enumerate(sorted(distinct))]


def table_of(text: str) -> pd.DataFrame:
    """Return a row per entry of a catalogue's JSON: what it says to people, and the JSON of it, for `content_of`."""
    content = json.loads(text)
    columns, entries, k = content["columns"], content["explanations"], content["policy"]["k"]
    head = {name: of for name, of in content.items() if name not in ("asked", "explanations")}
    head["entries"] = len(entries)
    cells = [_cells(entry) for entry in entries]
    said: dict[str, Any] = {"outcome": [_outcome(entry["outcome"]) for entry in entries]}
    said |= {f"feature.{n}" if n in _OWN else n: [each.get(n, "") for each in cells] for n in columns}
    said |= {name: [entry["certificate"][name] for entry in entries] for name in _FIGURES}
    said |= dict.fromkeys(_FLOORS, [k] * len(entries))
    said[_ENTRY] = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    said[_CATALOGUE] = [json.dumps(head, ensure_ascii=False)] * len(entries)
    return pd.DataFrame(said)


def _outcome(said: Mapping[str, Any] | None) -> str:
    if said is not None and "low" in said:
        return str(Outcome(bounds=(said["low"], said["high"])))
    return str(Outcome() if said is None else Outcome(said.get("label", said.get("not")), "not" in said))


def _cells(entry: Mapping[str, Any]) -> dict[str, str]:
    parts = {name: part_from_dict(part) for name, part in entry["region"].items()}
    for name, value in entry["released"].items():
        parts[name] = Interval(value["low"], value["high"]) if isinstance(value, dict) else part_of(value)
    return {name: part_to_text(part) for name, part in parts.items()} | dict.fromkeys(entry["withheld"], "withheld")


def content_of(table: pd.DataFrame, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a file of released explanations from the JSON columns of a catalogue's table."""
    if lost := [name for name in (_ENTRY, _CATALOGUE) if name not in table.columns]:
        raise InputError(f"not a table of `cfk catalogue`: it has no column {' and no column '.join(lost)}")
    if table.empty:
        raise InputError("holds no entry of a catalogue")
    head = parse(str(table[_CATALOGUE].iloc[0]))
    if type(count := head.pop("entries", None)) is not int or not 0 < count <= 2 * len(table):
        raise InputError("the column catalogue does not say how many entries there are, or says far more")
    asked = [{"query": query, "explanations": 1} for query in range(count)]
    return {**head, "asked": asked, "explanations": [parse(str(text)) for text in table[_ENTRY]]}


def wrong_table(table: pd.DataFrame, content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield where what a table says to people is not what its entries say."""
    own = table_of(json.dumps(content))
    if list(table.columns) != list(own.columns):
        yield Finding("columns", "are not those of a catalogue's table")
        return
    for name in own.columns:
        differs = table[name].map(str).to_numpy() != own[name].map(str).to_numpy()
        yield from (Finding(f"explanation {i}", f"{name} is not what its entry says") for i in np.flatnonzero(differs))
