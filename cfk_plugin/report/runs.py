"""What a report is about: the explanations and the results of audits of some runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.audit.result import GUESSES
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.policy import sha256_of
from cfk_plugin.errors import TrackingError
from cfk_plugin.report.data import NOT_MEASURED, OF_MODELS, Amount, Attack, Family
from cfk_plugin.tracking.record import FLOOR, Figures

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunEvidence:
    """One run: its figures, documents and rows (explanations with their recount); what it lacks is
    None.
    """

    run_id: str
    name: str = ""
    experiment: str = ""
    started: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)  # empty if its summary is not of its rows
    policy: Mapping[str, Any] | None = None
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    rows: pd.DataFrame | None = None
    prototype: Mapping[str, Any] | None = None
    audits: Sequence[Mapping[str, Any]] = ()

    @property
    def policy_agrees(self) -> bool:
        """Whether the logged policy has the hash that the run and all its certificates state."""
        if self.policy is None or self.rows is None:
            return False
        policy_hash = sha256_of(self.policy)
        stated = {self.tags.get("cfk.policy_sha256")}
        if "policy_hash" in self.rows:
            stated.update(self.rows["policy_hash"].dropna())
        return stated == {policy_hash}

    def setting(self, name: str) -> Any:
        """Return a setting of the policy; for `min_pureness` the floor that applied, if the run has
        it.
        """
        if name != "min_pureness" or FLOOR not in self.params:
            return (self.policy or {}).get(name)
        try:
            return float(self.params[FLOOR]) or None
        except ValueError:
            raise TrackingError(f"run {self.run_id}: parameter {FLOOR} is no number") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """All that a report is made from, oldest first; `missing`: by run, explanations that it counts
    and does not have.
    """

    runs: Sequence[RunEvidence]
    since: int | None = None
    until: int | None = None
    missing: Mapping[str, int] = field(default_factory=dict)

    def latest(self, name: str) -> Mapping[str, Any]:
        """Return a document of the newest run that has it; empty if none has."""
        for run in reversed(self.runs):
            document: Mapping[str, Any] | None = getattr(run, name)
            if document is not None:
                return document
        return {}


def needs_no_change(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Return a mask of explanations whose query had the desired outcome already."""
    if "reason" not in rows:
        return np.zeros(len(rows), dtype=bool)
    return (rows["reason"] == ALREADY_DESIRED).to_numpy(dtype=bool, na_value=False)


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """All explanations, run by run: ``run``: a position in `runs`; ``asked_k``: the larger k of
    policy and report.
    """

    rows: pd.DataFrame
    runs: Sequence[RunEvidence]

    @classmethod
    def of(cls, evidence: Evidence, k: int | None = None) -> Pooled:
        runs = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
        tables = []
        for i, run in enumerate(runs):
            k_of_policy = (run.policy or {}).get("k")
            asked_k = np.nan if k_of_policy is None else max(int(k_of_policy), k or 0)
            tables.append(run.rows.assign(run=np.int32(i), asked_k=asked_k))  # type: ignore[union-attr]
        if not tables:
            return cls(pd.DataFrame({name: [] for name in ("status", "k", "run", "asked_k")}), runs)
        # pandas 2 warns that pandas 3 will not leave out columns without a value; both will do.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            rows = pd.concat(tables, ignore_index=True, sort=False)
        return cls(rows, runs)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def released(self) -> pd.DataFrame:
        return self.rows[(self.rows["status"] == "released").to_numpy()]

    @cached_property
    def withheld(self) -> pd.DataFrame:
        return self.rows[(self.rows["status"] == "withheld").to_numpy()]

    @cached_property
    def already_desired(self) -> pd.DataFrame:
        """Withheld explanations of people whose outcome was the desired one already."""
        return self.rows[needs_no_change(self.rows)]

    @cached_property
    def regions(self) -> pd.DataFrame:
        return self.released[self.released["k"].notna().to_numpy()]

    @cached_property
    def prototypes(self) -> pd.DataFrame:
        return self.released[self.released["k"].isna().to_numpy()]

    @cached_property
    def k(self) -> int | None:
        asked = self.rows["asked_k"].dropna()
        return int(asked.min()) if len(asked) else None

    def of_all(self, name: str) -> pd.Series[Any]:
        """Return one column over all explanations."""
        return self.rows[name].dropna() if name in self.rows else pd.Series(dtype=object)

    def values(self, name: str) -> NDArray[np.float64]:
        """Return the known values of a figure of the released regions."""
        if name not in self.regions:
            return np.empty(0)
        return self.regions[name].dropna().to_numpy(dtype=np.float64)

    def complete(self, name: str) -> bool:
        """Say whether every released region has the figure, and a k to compare with."""
        if not len(self.regions) or name not in self.regions:
            return False
        return bool(self.regions[[name, "asked_k"]].notna().all(axis=None))

    def evidence(self, rows: pd.DataFrame, most: int = 5) -> tuple[str, ...]:
        """Return where some rows are: ``run/step``, at most a few."""
        some = rows.head(most)
        return tuple(
            f"{self.runs[run].run_id}/{step}"
            for run, step in zip(some["run"], some.get("step", some.index), strict=True)
        )

    def below(self, column: str) -> pd.DataFrame:
        """Return the released regions whose count in this column is below the k asked for."""
        if column not in self.regions:
            return self.regions.head(0)
        few = (self.regions[column] < self.regions["asked_k"]).fillna(False)
        return self.regions[np.asarray(few, dtype=np.bool_)]


# --- results of audits in the runs, and what each attack is compared with ---


_BEGINNINGS: tuple[Family, ...] = ("epsilon", *OF_MODELS)
_COIN = Amount(value=0.5)
_SAME = 1e-6
_DIFFERENCES = {"extraction": "gain", "attribute_inference": "advantage"}
"""Figures that are the difference itself, with an interval that uses that both sides are of the
same people.
"""


class Audited(NamedTuple):
    """An attack, and the audit that ran it, as it was logged."""

    attack: Attack
    audit: Mapping[str, Any]


class Compared(NamedTuple):
    """How much better an attack did than its reference."""

    with_what: str
    over: Amount


def compared(attack: Attack) -> Compared | None:
    """Compare an attack with what it would reach anyway; None if either was not measured.

    A copy of a model agrees with it without any explanation, so the gain over queries alone counts.
    Membership attacks are compared with a coin, or with their control where that is clearly not a
    coin, as it is when the two groups differ by more than training. All other attacks are compared
    with their control, the same attack on people who were not trained on, or, without one, with the
    same guess without the explanation.
    """
    with_what, reference = _reference(attack)
    main = attack.main
    if main.value is None or reference.value is None:
        return None
    value, name = reference.value, _DIFFERENCES.get(attack.family, "")
    middle, *ends = [attack.figure(f"{name}{end}") for end in ("", "_low", "_high")]
    if middle is not None and None not in ends and abs(middle - (main.value - value)) < _SAME:
        return Compared(with_what, Amount(value=middle, low=ends[0], high=ends[1], n=main.n))
    low, high = (None if end is None else end - value for end in (main.low, main.high))
    return Compared(with_what, Amount(value=main.value - value, low=low, high=high, n=main.n))


def whole(name: str) -> str:
    """Return the attack that a result is part of: the name without that of an attribute."""
    return name.partition("/")[0]


def _reference(attack: Attack) -> tuple[str, Amount]:
    if attack.family == "extraction":
        return "baseline", attack.baseline
    control = attack.control
    if attack.family == "membership" and (control.low or 0.0) <= 0.5 <= (
        1.0 if control.high is None else control.high
    ):
        return "chance", _COIN  # the control's own noise would only add to the attack's
    return ("control", control) if control.value is not None else ("baseline", attack.baseline)


def audited(evidence: Evidence) -> tuple[Audited, ...]:
    """Return the latest result of every attack on each subject; the most successful one in force is
    judged.
    """
    released = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
    latest: dict[tuple[str, str, bool], Audited] = {}
    for run in evidence.runs:
        for audit in run.audits:
            for attack in _attacks_of(audit, run.run_id, released):
                key = (attack.id, attack.subject, attack.concerns)
                latest.pop(key, None)  # keeps the order of the runs
                latest[key] = Audited(attack, audit)
    by_name: dict[str, list[Audited]] = {}
    for found in latest.values():
        by_name.setdefault(whole(found.attack.id), []).append(found)
    of_all = (each for same in by_name.values() for each in _judged(same))
    return tuple(sorted(of_all, key=lambda each: _place(each.attack)))


def _place(attack: Attack) -> tuple[bool, str, str, bool, str]:
    return attack.family != "linkage", attack.family, attack.id, not attack.judged, attack.subject


def _judged(same: Sequence[Audited]) -> Iterator[Audited]:
    """Mark which of several subjects an attack is judged on: the worst one for the release."""
    threats = [(found.attack.concerns, _threat(found.attack), i) for i, found in enumerate(same)]
    worst = same[max(threats)[2]].attack
    for found in same:
        attack = found.attack
        judged = (attack.subject, attack.concerns) == (
            worst.subject,
            worst.concerns,
        ) and attack.id not in GUESSES
        yield found if judged else found._replace(attack=replace(attack, judged=False))


def _threat(attack: Attack) -> float:
    found = compared(attack) if attack.concerns else None
    return (
        0.0
        if found is None
        else found.over.value or 0.0
        if found.over.high is None
        else found.over.high
    )


def _attacks_of(
    audit: Mapping[str, Any], run: str, released: Sequence[RunEvidence]
) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        of: Family = next(
            (of for text in (name, kind) for of in _BEGINNINGS if text.startswith(of)), "linkage"
        )
        protected = of not in OF_MODELS or audit.get("policy") is not None
        yield Attack(
            id=name,
            family=of,
            scenario=str(result.get("scenario", "")),
            main=_logged(result.get("main")),
            baseline=_logged(result.get("baseline")),
            control=_logged(result.get("control")),
            figures={
                key: Amount(value=value) for key, value in sorted(result.get("figures", {}).items())
            },
            worked=bool(result.get("worked")),
            covers=protected and all(_is_about(audit, other) for other in released),
            run=run,
            subject=str(audit.get("subject") or ""),
            concerns=protected
            and (not released or any(_has_policy_of(audit, other) for other in released)),
        )


def _is_about(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    """Say whether an audit was of a run's policy and population, as far as the audit names them."""
    population = audit.get("population")
    return _has_policy_of(audit, run) and (
        population is None or population == run.tags.get("cfk.population_fingerprint")
    )


def _has_policy_of(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    policy = audit.get("policy")
    return policy is None or sha256_of(policy) == run.tags.get("cfk.policy_sha256")


def _logged(found: Mapping[str, Any] | None) -> Amount:
    if found is None or found.get("value") is None:
        return NOT_MEASURED
    return Amount(
        value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n")
    )
