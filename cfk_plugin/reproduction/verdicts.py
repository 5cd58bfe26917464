"""Whether our figures are better than the paper's, and than its method on the same models; by how much not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import mean_of
from cfk_plugin.reproduction.outcome import Measurement
from cfk_plugin.reproduction.published import published

Word = Literal["reached", "equal", "tied", "missed", "not measured"]

OURS = ("exact-pureness", "exact-ncp", "exact-weighted")
"""Methods that are judged. The first has the paper's objective: purest, and of those least NCP."""

THEIRS = "grasp"
PAPER = "paper"

_PAIRS = (
    *((method, yardstick) for yardstick in (PAPER, THEIRS) for method in OURS),
    (THEIRS, PAPER),
    (THEIRS, "mondrian-raw"),
    (OURS[0], "mondrian"),
)
"""Who is compared with whom: ours with the paper and its method, and as the paper does, with Mondrian."""

_NOTHING = 1e-9  # means of the same numbers may differ in the last digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One method against a yardstick, on one table at one k.

    Attributes
    ----------
    table, method : str
    k : int
    against : str
        "paper": the printed CF-K, over other explanations of another model; or a method on the same ones.
    n : int
        Explanations that our figures are over; against a method those that both released, of the first that both were
        asked for.
    ncp, pureness, their_ncp, their_pureness : float or None
        Means.
    ncp_low, ncp_high, pureness_low, pureness_high : float or None
        95 % bootstrap interval of ours minus theirs; against a method of the differences of single explanations.
    optimal : bool
        Whether each result of the method is proven optimal for its objective.
    """

    table: str
    method: str
    k: int
    against: str
    n: int
    ncp: float | None
    their_ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    their_pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    optimal: bool

    @property
    def ncp_word(self) -> Word:
        """Whether NCP is lower. "equal" at 0, or where both figures tie and ours are proven optimal."""
        return self._word(self.ncp, self.their_ncp, sign=-1, bound=0)

    @property
    def pureness_word(self) -> Word:
        """Whether pureness is higher. "equal" at 1, or where both figures tie and ours are proven optimal."""
        return self._word(self.pureness, self.their_pureness, sign=1, bound=1)

    @property
    def is_measured(self) -> bool:
        """Whether there is something to judge."""
        return self.ncp_word != "not measured" and self.pureness_word != "not measured"

    @property
    def is_reached(self) -> bool:
        """Whether both are better, or equal where nothing better is possible."""
        return {self.ncp_word, self.pureness_word} <= {"reached", "equal"}

    @property
    def ncp_missed_by(self) -> float:
        """How much higher our NCP is; 0 where it is not."""
        return 0.0 if self.ncp is None or self.their_ncp is None else max(self.ncp - self.their_ncp, 0.0)

    @property
    def pureness_missed_by(self) -> float:
        """How much lower our pureness is; 0 where it is not."""
        if self.pureness is None or self.their_pureness is None:
            return 0.0
        return max(self.their_pureness - self.pureness, 0.0)

    def _word(self, ours: float | None, theirs: float | None, *, sign: int, bound: float) -> Word:
        if ours is None or theirs is None:
            return "not measured"
        if abs(ours - theirs) > _NOTHING:
            return "reached" if sign * (ours - theirs) > 0 else "missed"
        return "equal" if abs(ours - bound) <= _NOTHING or (self.optimal and self._both_tie()) else "tied"

    def _both_tie(self) -> bool:
        pairs = ((self.ncp, self.their_ncp), (self.pureness, self.their_pureness))
        return all(a is not None and b is not None and abs(a - b) <= _NOTHING for a, b in pairs)


class _Compared(NamedTuple):
    """Means of ours and theirs, and the interval of the difference."""

    ours: float | None
    theirs: float | None
    low: float | None
    high: float | None


def verdicts(outcomes: Iterable[Measurement]) -> list[Verdict]:
    """Judge methods on every table and k that was measured: ours against the paper and GRASP, both against Mondrian.

    Parameters
    ----------
    outcomes : iterable of Measurement
        Those with settings that are not the method's usual ones are left out.

    Returns
    -------
    list of Verdict
        None where a method or its yardstick was not measured.

    Raises
    ------
    InputError
        If a method was measured on another model or other explanations than its yardstick.
    """
    usual = {(o.setting.table, o.k, o.method): o for o in outcomes if not o.options}
    places = list(dict.fromkeys(key[:2] for key in usual))
    found = []
    for method, yardstick in _PAIRS:
        for table, k in places:
            ours, theirs = usual.get((table, k, method)), usual.get((table, k, yardstick))
            if ours is not None and yardstick == PAPER:
                found += _against_paper(ours)
            elif ours is not None and theirs is not None:
                found.append(_against(theirs, ours))
    return found


def _against_paper(ours: Measurement) -> list[Verdict]:
    printed = published().result("cf-k", ours.k, ours.setting.table)
    if printed is None:
        return []
    places = [place for place in range(ours.asked) if ours.figures["ncp"][place] is not None]
    return [_verdict(ours, PAPER, places, [printed.ncp] * len(places), [printed.pureness] * len(places))]


def _against(theirs: Measurement, ours: Measurement) -> Verdict:
    if ours.setting != theirs.setting:
        raise InputError(f"{ours.setting.table}: {ours.method} and {theirs.method} were measured on different settings")
    first = range(min(ours.asked, theirs.asked))
    places = [p for p in first if ours.figures["ncp"][p] is not None and theirs.figures["ncp"][p] is not None]
    return _verdict(ours, theirs.method, places, _at(theirs, "ncp", places), _at(theirs, "pureness", places))


def _verdict(ours: Measurement, against: str, places: list[int], ncp: list[float], pureness: list[float]) -> Verdict:
    loss = _compare(_at(ours, "ncp", places), ncp)
    valid = _compare(_at(ours, "pureness", places), pureness)
    proven = _at(ours, "proven", places)
    return Verdict(
        table=ours.setting.table,
        method=ours.method,
        k=ours.k,
        against=against,
        n=len(places),
        ncp=loss.ours,
        their_ncp=loss.theirs,
        ncp_low=loss.low,
        ncp_high=loss.high,
        pureness=valid.ours,
        their_pureness=valid.theirs,
        pureness_low=valid.low,
        pureness_high=valid.high,
        optimal=bool(proven) and all(value == 1 for value in proven),
    )


def _at(outcome: Measurement, name: str, places: list[int]) -> list[float]:
    values = outcome.figures[name]
    return [math.nan if values[place] is None else float(values[place] or 0) for place in places]


def _compare(ours: list[float], theirs: list[float]) -> _Compared:
    if not ours:
        return _Compared(None, None, None, None)
    differences = mean_of(np.asarray(ours) - np.asarray(theirs), np.random.default_rng(0)).to_dict()
    return _Compared(_mean(ours), _mean(theirs), differences["low"], differences["high"])


def _mean(values: list[float]) -> float | None:
    mean = math.fsum(values) / len(values)
    return mean if math.isfinite(mean) else None
