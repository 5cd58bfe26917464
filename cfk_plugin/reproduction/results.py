"""What the page and the plots are made of: aggregates, verdicts and studies, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.outcome import Measurement, Scene, Setting
from cfk_plugin.reproduction.summary import Aggregate, aggregates
from cfk_plugin.reproduction.verdicts import Verdict, verdicts

SCHEMA_VERSION = 1
STUDIES = ("parameters", "fairness", "plausibility", "frontier", "candidates", "weights")

Row = Mapping[str, str | float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that is said about the experiments. No value of a row.

    Attributes
    ----------
    command : str
        The command line that gives these results.
    machine : str
        What the times were measured on; "" where nobody said.
    settings, scenes : mapping
        By table: what was asked for, and what it led to.
    aggregates : tuple of Aggregate
    verdicts : tuple of Verdict
    studies : mapping
        Name, one of `STUDIES`, to its rows; without those that were not run.
    """

    command: str
    machine: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    scenes: Mapping[str, Scene] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    studies: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        outcomes: Iterable[Measurement],
        *,
        command: str,
        machine: str = "",
        studies: Iterable[Mapping[str, Any]] = (),
        runs: Mapping[tuple[str, str, int], str] | None = None,
    ) -> Results:
        """Summarise outcomes and studies.

        Parameters
        ----------
        outcomes : iterable of Measurement
            One per table, method and k. Those with settings that are not the method's usual ones are left out: they
            belong to studies.
        command, machine : str
        studies : iterable of mapping
            ``{"name": one of STUDIES, "rows": [flat mapping, ...]}``.
        runs : mapping, optional
            (table, method, k) to the id of the MLflow run.

        Returns
        -------
        Results

        Raises
        ------
        InputError
            If outcomes of one table have different settings or two are of the same method and k, or a study is unknown
            or not flat.
        """
        usual = [outcome for outcome in outcomes if not outcome.options]
        settings: dict[str, Setting] = {}
        seen: set[tuple[str, str, int]] = set()
        for outcome in usual:
            name, key = outcome.setting.table, (outcome.setting.table, outcome.method, outcome.k)
            if settings.setdefault(name, outcome.setting) != outcome.setting:
                raise InputError(f"{name}: outcomes of different settings do not compare; summarise one setting")
            if key in seen:
                raise InputError(f"{name}: two outcomes of {outcome.method} at k = {outcome.k}; give each once")
            seen.add(key)
        return cls(
            command=command,
            machine=machine,
            settings=settings,
            scenes={outcome.setting.table: outcome.scene for outcome in usual},
            aggregates=tuple(aggregates(usual, runs)),
            verdicts=tuple(verdicts(usual)),
            studies=dict(_study(study) for study in studies),
        )

    @property
    def versions(self) -> dict[str, str]:
        """Library to version; several versions where tables were measured with different ones."""
        found: dict[str, set[str]] = {}
        for setting in self.settings.values():
            for name, version in setting.versions.items():
                found.setdefault(name, set()).add(version)
        return {name: ", ".join(sorted(found[name])) for name in sorted(found)}

    def find(self, table: str, method: str, k: int) -> Aggregate | None:
        """Return the aggregate of a table, method and k; None where it was not run."""
        return next((a for a in self.aggregates if (a.table, a.method, a.k) == (table, method, k)), None)

    def rows(self, study: str) -> tuple[Row, ...]:
        """Return the rows of a study; none where it was not run."""
        return self.studies.get(study, ())

    def to_json(self) -> str:
        """Return it as JSON; the same results give the same text."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read what `to_json` wrote.

        Raises
        ------
        InputError
            If it was written by another version.
        """
        found = json.loads(text)
        version = found.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InputError(f"results of schema version {version}, expected {SCHEMA_VERSION}; run it again")
        return cls(
            command=found["command"],
            machine=found["machine"],
            settings={name: Setting(**value) for name, value in found["settings"].items()},
            scenes={name: Scene(**value) for name, value in found["scenes"].items()},
            aggregates=tuple(Aggregate(**value) for value in found["aggregates"]),
            verdicts=tuple(Verdict(**value) for value in found["verdicts"]),
            studies={name: tuple(rows) for name, rows in found["studies"].items()},
        )


def _study(study: Mapping[str, Any]) -> tuple[str, tuple[Row, ...]]:
    name, rows = study["name"], study["rows"]
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}; expected one of {', '.join(STUDIES)}")
    return name, tuple(_flat(name, rows))


def _flat(study: str, rows: Sequence[Mapping[str, Any]]) -> Iterable[Row]:
    for row in rows:
        for column, value in row.items():
            is_number = isinstance(value, int | float) and math.isfinite(value)
            if not (value is None or isinstance(value, str) or is_number):
                raise InputError(f"study {study}: column {column} holds something that is no text, number or None")
        yield dict(row)
