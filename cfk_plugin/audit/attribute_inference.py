"""Attribute inference: what explanations disclose of private attributes of people in the training
table.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.result import AttackReport, AuditResult, Rate, mean
from cfk_plugin.audit.setting import AuditRows
from cfk_plugin.audit.targets import (
    Answers,
    Found,
    Sample,
    Target,
    TrainedTarget,
    check_sample,
    report_on,
)
from cfk_plugin.data.codes import MISSING, Column
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import (
    Interval,
    Part,
    natural,
    part_contains,
    part_of,
    to_number,
    to_text,
)
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.metrics.intervals import clustered_share, difference

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class Register(AuditRows):
    """Everybody's features, coded.

    Distinct combinations of quasi-identifiers are cells; guesses are made per cell.
    """

    def __init__(self, people: pd.DataFrame, quasi_identifiers: Sequence[str]) -> None:
        population = Population.from_frame(
            people, Schema.from_frame(people, quasi_identifiers=quasi_identifiers)
        )
        codes = population.row_codes
        self.quasi_identifiers = [codes.names[j] for j in codes.quasi.tolist()]
        self.cells = population.classes
        self.cell_of = population.class_of_row
        self.columns = {column.name: column for column in codes.columns}
        self._places = {
            column.name: places(column, population.coded_rows[:, j])
            for j, column in enumerate(codes.columns)
        }

    def _counts(self) -> str:
        return f"{len(self.cell_of)} people, {len(self.cells)} cells"

    def codes(self, name: str, people: Rows) -> Rows:
        """Return the places of people's values among those of a column; the last is missing."""
        return self._places[name][people]

    def fitting(self, parts: Mapping[str, Part]) -> Rows:
        """Return the cells that fit what an answer says of the quasi-identifiers; what it does not
        name always fits.
        """
        fits = np.ones(len(self.cells), dtype=bool)
        for at, name in enumerate(self.quasi_identifiers):
            if name in parts:
                column = self.columns[name]
                fits &= holding(column, parts[name])[places(column, self.cells[:, at])]
        return np.flatnonzero(fits)


def places(column: Column, codes: Floats) -> Rows:
    """Return the place of each code among the values of a column; a missing one comes last."""
    place = np.searchsorted(column.places, codes)
    return np.where(codes == MISSING, len(column.places), place)


def holding(column: Column, part: Part) -> Mask:
    """Say for every value of a column whether it is inside a part, however the part spells
    values.
    """
    if isinstance(part, Interval) and part.levels is not None:
        part = frozenset([*part.levels, None] if part.missing else part.levels)
    values = [column.value(code) for code in column.places.tolist()]
    if not isinstance(part, Interval):
        texts = {None if value is None else to_text(value) for value in part}
        inside = [(None if value is None else to_text(value)) in texts for value in values]
    else:
        inside = [part_contains(part, value) for value in values]
    is_missing_inside = part.missing if isinstance(part, Interval) else None in part
    return np.array([*inside, is_missing_inside], dtype=bool)


def near(column: Column, part: Part, tolerance: float) -> Mask:
    """Say for every value of a column whether guessing the part is right if it is the true
    value.
    """
    number = number_of(column, part)
    if number is None:
        return holding(column, part)
    most = tolerance * width(column) * (1 + 1e-9)
    right = np.abs(column.places - number) <= most
    return np.append(right, [False])


def number_of(column: Column, part: Part) -> float | None:
    """Return the single number that a part of a numeric column is; None if it is several, missing
    or not a number.
    """
    if not column.is_numeric or not is_one_value(part):
        return None
    value = part.low if isinstance(part, Interval) else next(iter(part))
    return None if value is None else to_number(value)


def is_one_value(part: Part) -> bool:
    return part.is_single if isinstance(part, Interval) else len(part) == 1


def width(column: Column) -> float:
    return float(np.ptp(column.places)) if len(column.places) else 0.0


Said = Mapping[str, Part]


def said_by(answers: Answers) -> list[Said]:
    """Return what each answer says: attribute to a value, range or set."""
    if answers.explanations is not None:
        return [entry.parts() for entry in answers.explanations.released]
    given = answers.rows[answers.found]
    names = list(given.columns)
    return [
        {n: part_of(natural(v)) for n, v in zip(names, row, strict=True)}
        for row in given.itertuples(index=False)
    ]


class Answered(AuditRows):
    """Distinct answers, and whom they fit.

    What answers say of the quasi-identifiers alone is a place.
    """

    def __init__(self, said: list[Said], register: Register, table: Rows) -> None:
        times = Counter(frozenset(parts.items()) for parts in said)  # in order of first occurrence
        self.distinct: list[Said] = [dict(parts) for parts in times]
        self.times = np.array(list(times.values()), dtype=np.int64)
        quasi = [
            frozenset(
                (name, part) for name, part in parts.items() if name in register.quasi_identifiers
            )
            for parts in self.distinct
        ]
        places = {there: place for place, there in enumerate(dict.fromkeys(quasi))}
        self.place_of = np.array([places[there] for there in quasi], dtype=np.int64)
        self.cells = [register.fitting(dict(there)) for there in places]
        crowd = np.bincount(register.cell_of[table], minlength=len(register.cells))
        self.people = np.array([crowd[cells].sum() for cells in self.cells], dtype=np.int64)

    def _counts(self) -> str:
        return f"{len(self.distinct)} distinct answers, {len(self.cells)} places"

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of people of the table who fit, per answer given."""
        return np.repeat(self.people[self.place_of], self.times)


_DIGITS = 9  # votes are sums of fractions, so equal ones may differ in the last bits


class Guesses(NamedTuple):
    parts: tuple[Part, ...]  # the distinct guesses, in order of first occurrence
    guess: Rows  # which of them, per cell; -1 for no guess
    place: Rows  # of the answer that the guess rests on, per cell
    right: Mask  # per guess and true value: whether the guess is right

    def about(self, register: Register, name: str, people: Rows) -> tuple[Rows, Rows, Mask]:
        """Return the people about whom something is guessed, the place each guess rests on, and
        whether it is right.
        """
        people = people[self.guess[register.cell_of[people]] >= 0]
        cells = register.cell_of[people]
        return (
            people,
            self.place[cells],
            self.right[self.guess[cells], register.codes(name, people)],
        )


def guesses(answered: Answered, register: Register, name: str, tolerance: float) -> Guesses:
    """Guess one attribute per cell by votes of 1 / m for m people who fit; then by most answers;
    then the first.
    """
    found: dict[Part, int] = {}
    votes = [
        (first, place, found.setdefault(said[name], len(found)))
        for first, (said, place) in enumerate(
            zip(answered.distinct, answered.place_of.tolist(), strict=True)
        )
        if name in said
    ]
    column = register.columns[name]
    right = np.array([near(column, part, tolerance) for part in found], dtype=bool).reshape(
        len(found), len(column.places) + 1
    )
    guess, place = np.full((2, len(register.cells)), -1, dtype=np.int64)
    if votes:
        winners = _winners(votes, answered)
        guess[winners["cell"]], place[winners["cell"]] = winners["guess"], winners["place"]
    return Guesses(tuple(found), guess, place, right)


def _winners(votes: list[tuple[int, int, int]], answered: Answered) -> pd.DataFrame:
    """Return, per cell, the guess with most votes and the place of its largest vote."""
    # ascending or not
    by = {"cell": True, "all": False, "often": False, "first": True, "vote": False, "place": True}
    each = pd.DataFrame(votes, columns=["first", "place", "guess"])
    each["vote"] = 1.0 / np.maximum(answered.people[each["place"]], 1)
    said = (
        each.groupby(["place", "guess"])
        .agg(vote=("vote", "sum"), first=("first", "min"))
        .reset_index()
    )
    said["often"] = said["guess"].map(each["guess"].value_counts())
    cells = [answered.cells[place] for place in said["place"]]
    there = said.loc[said.index.repeat([len(own) for own in cells])].assign(
        cell=np.concatenate(cells)
    )
    of_guess = there.groupby(["cell", "guess"])
    there = there.assign(
        all=of_guess["vote"].transform("sum").round(_DIGITS),
        first=of_guess["first"].transform("min"),
    )
    return there.sort_values(list(by), ascending=list(by.values())).drop_duplicates("cell")


# trees; people in a leaf of each; classes, the most frequent ones
_TREES, _LEAST, _MOST = 30, 5, 50


def baseline(
    guessed: Guesses,
    register: Register,
    name: str,
    own: Rows,
    asked: Rows,
    *,
    tolerance: float,
    seed: int,
) -> Mask:
    """Say for people whether a guess from quasi-identifiers alone is right, at the width of the
    answers' guesses.
    """
    from sklearn.ensemble import RandomForestClassifier

    class_of = _classes(guessed, register, name, tolerance)
    learnt = class_of[register.codes(name, own)]
    classes, counts = np.unique(learnt, return_counts=True)
    common = np.isin(learnt, classes[np.argsort(-counts, kind="stable")[:_MOST]])
    cells, where = np.unique(register.cell_of[asked], return_inverse=True)
    forest = RandomForestClassifier(_TREES, min_samples_leaf=_LEAST, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        # nearly as many classes as people, so little to learn
        warnings.simplefilter("ignore", UserWarning)
        forest.fit(register.cells[register.cell_of[own[common]]], learnt[common])
    chosen = forest.predict(register.cells[cells])
    return np.asarray(chosen[where] == class_of[register.codes(name, asked)])


def _classes(
    guessed: Guesses, register: Register, name: str, tolerance: float
) -> NDArray[np.int64]:
    column = register.columns[name]
    if not all(map(is_one_value, guessed.parts)):
        return np.where(guessed.right.any(axis=0), guessed.right.argmax(axis=0), -1)
    window = 2 * tolerance * width(column) if column.is_numeric else 0.0
    if window <= 0:
        return np.arange(len(column.places) + 1)
    classes = ((column.places - column.places[0]) // window).astype(np.int64)
    return np.append(classes, -1)  # missing


RIGHT, ALL, BASE, CONTROL_RIGHT, CONTROL_ALL = range(5)
"""Columns of ``counts``: about the table, guesses that are right, all, right without answers; then
the control's.
"""

FEW = 3
"""An answer that fits at most this many people of the table singles them out."""


@dataclass(frozen=True, slots=True)
class Setup:
    quasi_identifiers: tuple[str, ...]
    private: tuple[str, ...]
    n_train: int
    queries: int
    tolerance: float
    seed: int

    def split(self, n: int) -> tuple[Rows, Rows, Rows]:
        """Return the table, the adversary's own people and the control; see `split_people`."""
        return split_people(n, self.n_train, self.seed)


def split_people(n_people: int, n_train: int, seed: int) -> tuple[Rows, Rows, Rows]:
    """Return the table, the adversary's own people and the control: disjoint positions."""
    order = np.random.default_rng(seed).permutation(n_people)
    n_own = (n_people - n_train + 1) // 2
    table, own, control = np.split(order, [n_train, n_train + n_own])
    return table, own, control


def attack(owner: Target, sample: Sample, setup: Setup) -> Found:
    table, own, control = people = setup.split(len(sample))
    service = owner.train(sample.take(table), setup.seed)
    asked, said, given = _ask(service, sample.X.take(own), setup.queries)
    register = Register(sample.X, setup.quasi_identifiers)
    answered = Answered(said, register, table)
    guessed = {name: guesses(answered, register, name, setup.tolerance) for name in setup.private}
    places = len(answered.cells)
    return {
        "asked": np.array(asked),
        "answered": np.array(given),
        "sizes": answered.sizes,  # people of the table who fit, per answer
        "people": answered.people,  # the same, per place
        # Guesses per attribute, place and column; people holding what an answer says, of those who
        # fit it; people of table and control about whom anything was guessed, then those by answers
        # that fit few.
        "counts": np.array(
            [_counts(guessed[name], register, name, people, setup, places) for name in guessed]
        ),
        "shares": np.array(
            [_shares(guessed[name], answered, register, name, table) for name in guessed]
        ),
        "guessed": _guessed(guessed.values(), few(answered.people), register, (table, control)),
    }


def _ask(service: TrainedTarget, people: pd.DataFrame, queries: int) -> tuple[int, list[Said], int]:
    """Return how many people with the undesired outcome ask, what they are told, and how many get
    an answer.
    """
    undesired = np.flatnonzero(~service.desired(people))[:queries]
    if not len(undesired):
        return 0, [], 0
    answers = service.explain(people.take(undesired).reset_index(drop=True))
    return len(undesired), said_by(answers), int(answers.found.sum())


def few(people: Rows) -> Mask:
    return (people > 0) & (people <= FEW)


def _counts(
    guessed: Guesses,
    register: Register,
    name: str,
    people: tuple[Rows, Rows, Rows],
    setup: Setup,
    places: int,
) -> Rows:
    table, own, control = people
    counts = np.zeros((places, 5), dtype=np.int64)
    for rows, right, everybody in ((table, RIGHT, ALL), (control, CONTROL_RIGHT, CONTROL_ALL)):
        crowd, place, hits = guessed.about(register, name, rows)
        np.add.at(counts[:, right], place[hits], 1)
        np.add.at(counts[:, everybody], place, 1)
        if everybody == ALL and len(crowd):
            without = baseline(
                guessed, register, name, own, crowd, tolerance=setup.tolerance, seed=setup.seed
            )
            np.add.at(counts[:, BASE], place[without], 1)
    return counts


def _shares(
    guessed: Guesses, answered: Answered, register: Register, name: str, table: Rows
) -> Floats:
    """Return, per answer, the share of those who fit it who hold what it says; NaN if nobody
    fits.
    """
    shares, which = (
        np.full(len(answered.distinct), np.nan),
        {part: i for i, part in enumerate(guessed.parts)},
    )
    cells, codes = register.cell_of[table], register.codes(name, table)
    for at, (said, place) in enumerate(zip(answered.distinct, answered.place_of, strict=True)):
        if name in said and answered.people[place]:
            inside = np.zeros(len(register.cells), dtype=bool)
            inside[answered.cells[place]] = True
            shares[at] = guessed.right[which[said[name]], codes[inside[cells]]].mean()
    return np.repeat(shares, answered.times)


def _guessed(
    guessed: Iterable[Guesses], singled: Mask, register: Register, crowds: Sequence[Rows]
) -> Rows:
    """Count, per crowd, the people about whom anything was guessed, and those by answers that fit
    few.
    """
    rests_on = np.zeros((2, len(register.cells)), dtype=bool)
    for of in guessed:
        about = np.flatnonzero(of.guess >= 0)
        rests_on[0, about] = True
        rests_on[1, about[singled[of.place[about]]]] = True
    return np.array(
        [[cells[register.cell_of[rows]].sum() for rows in crowds] for cells in rests_on]
    )


NAME, SINGLED_OUT = "attribute_inference_linkage", "attribute_inference_singled_out"
SCENARIO = (
    "Knows the quasi-identifiers of everybody in the training table, asks for explanations, looks"
    " up who fits them, and guesses that those people hold the private values that the explanations"
    " say."
)
ONLY_FEW = f"{SCENARIO} Guesses only where an explanation fits at most {FEW} people of the table."


def results(found: Found, setup: Setup) -> tuple[AuditResult, ...]:
    """Return the result over all private attributes, that of answers that single out, and one for
    each attribute.
    """
    counts, shares = np.asarray(found["counts"]), np.asarray(found["shares"])
    asked, n, sizes = int(found["asked"]), int(found["answered"]), np.asarray(found["sizes"])
    places, answers = few(np.asarray(found["people"])), few(sizes)
    pooled = {
        "answers": float(n),
        "unanswered": 1 - n / asked if asked else math.nan,
        "fits_one": mean(sizes == 1),
        "fits_nobody": mean(sizes == 0),
        **_people(found["guessed"][0]),
    }
    singled = {"share_of_answers": mean(answers), **_people(found["guessed"][1])}
    return (
        _result(NAME, SCENARIO, counts.sum(axis=0), shares, pooled, setup.seed),
        _result(
            SINGLED_OUT,
            ONLY_FEW,
            counts.sum(axis=0)[places],
            shares[:, answers],
            singled,
            setup.seed,
        ),
        *(
            _result(
                f"{NAME}/{name}",
                SCENARIO,
                own,
                shares[[i]],
                _people(own.sum(axis=0)[[ALL, CONTROL_ALL]]),
                setup.seed,
            )
            for i, (name, own) in enumerate(zip(setup.private, counts, strict=True))
        ),
    )


def _result(
    name: str, scenario: str, counts: Rows, shares: Floats, figures: dict[str, float], seed: int
) -> AuditResult:
    columns = ((RIGHT, ALL), (BASE, ALL), (CONTROL_RIGHT, CONTROL_ALL))
    main, baseline, control = (
        _share(counts[:, right], counts[:, total], seed) for right, total in columns
    )
    low, high = difference(main[:3], control[:3])
    told = shares[:, ~np.isnan(shares).all(axis=0)]
    figures = {
        **figures,
        "advantage": main.value - control.value,
        "advantage_low": low,
        "advantage_high": high,
        "each_answer": mean(np.nanmean(told, axis=0)),
    }
    return AuditResult(name, scenario, main, baseline, control, figures, seed, shares.shape[1])


def _share(right: Rows, total: Rows, seed: int) -> Rate:
    """Return the share of right guesses, with an interval over places, as people in one place get
    the same guess.
    """
    n, everybody = int((total > 0).sum()), int(total.sum())
    value = int(right.sum()) / everybody if everybody else math.nan
    return Rate(value, *clustered_share(right, total, random_state=seed), n)


def _people(guessed: Rows) -> dict[str, float]:
    return {"people_guessed": float(guessed[0]), "control_people": float(guessed[1])}


_TRAIN = 0.6  # share of the sample; the rest ask, train the baseline, and are the control


def attribute_inference(
    owner: Target,
    sample: Sample,
    *,
    quasi_identifiers: Sequence[str],
    n_train: int | None = None,
    queries: int = 200,
    tolerance: float = 0.05,
    private: Sequence[str] | None = None,
    seed: int = 0,
) -> AttackReport:
    """Attack private attributes of people in the training table through answers that fit their
    quasi-identifiers.

    An answer fits everybody whose quasi-identifiers equal those of a row or prototype, or lie
    inside a region. One value is guessed per person and attribute: the one with most votes, where
    an answer that fits m people of the table is a vote of 1 / m for what it says.

    Source: Goethals, Sörensen, Martens (2023), section 2: prosecutor and journalist. The control
    follows Giomi, Boenisch, Wehmeyer, Tasnádi (2023), A unified framework for quantifying privacy
    risk in synthetic data.

    Parameters
    ----------
    owner : Target
    sample : Sample
        Split into the table, the adversary's own people (who ask if their outcome is undesired) and
        the control.
    quasi_identifiers : sequence of str
        What the adversary knows of everybody; it need not be what the owner protects.
    n_train : int, optional
        People of the table. Default: 60 % of the sample.
    queries : int
        Largest number of queries; fewer if fewer of the adversary's own people have the undesired
        outcome.
    tolerance : float
        Share of a number's range in the sample, below 0.5, by which a right guess may be off. A
        released range or set is a guess of all of it, and right about everybody inside.
    private : sequence of str, optional
        Attributes to guess. Default: all other features.
    seed : int

    Returns
    -------
    AttackReport
        Results over all attributes, of guesses from answers that fit at most three people, and for
        each attribute. `baseline`: a forest on the quasi-identifiers, without any answer.
        `control`: guesses about other people. Intervals are over places, the distinct sets of
        quasi-identifiers that answers give, as people who fit the same one get the same guess; see
        `clustered_share`.
    """
    started = time.perf_counter()
    setup = _checked(sample, quasi_identifiers, n_train, queries, tolerance, private, seed)
    found = attack(owner, sample, setup)
    settings: dict[str, str | int | float | bool] = {
        "n_train": setup.n_train,
        "queries": queries,
        "tolerance": setup.tolerance,
        "seed": seed,
        "quasi_identifiers": ", ".join(setup.quasi_identifiers),
        "private": ", ".join(setup.private),
    }
    return report_on(owner, "attribute_inference", results(found, setup), settings, started=started)


def _checked(
    sample: Sample,
    quasi_identifiers: Sequence[str],
    n_train: int | None,
    queries: int,
    tolerance: float,
    private: Sequence[str] | None,
    seed: int,
) -> Setup:
    """Refuse settings that are out of range; columns come in the table's order."""
    check_sample(sample)
    whole_number("seed", seed, 0)
    features, n = list(sample.X.columns), len(sample)
    if isinstance(quasi_identifiers, str) or isinstance(private, str):
        raise InputError("quasi_identifiers and private are lists of columns, not one name")
    known = list(quasi_identifiers)
    guessed = [name for name in features if name not in known] if private is None else list(private)
    for what, names in (("quasi-identifiers", known), ("private attributes", guessed)):
        if not names:
            raise InputError(f"{what} must be one column at least")
        if unknown := [name for name in names if name not in features]:
            raise InputError(
                f"{what} that are no columns of the sample: {', '.join(map(str, unknown))}"
                f"{did_you_mean(unknown, features)}"
            )
    if len({*known, *guessed}) < len(known) + len(guessed):
        raise InputError("a column is a quasi-identifier or a private attribute, once")
    size = round(_TRAIN * n) if n_train is None else n_train
    whole_number("n_train", size, 1)
    whole_number("queries", queries, 1)
    if n - size < 2:
        raise InputError(
            f"a sample of {n} leaves fewer than 2 people outside of the table; take a smaller"
            " n_train"
        )
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, (int, float))
        or not 0 <= tolerance < 0.5
    ):
        raise InputError("tolerance must be a share of the range of at least 0 and below 0.5")
    quasi, private = (
        tuple(name for name in features if name in names) for names in (known, guessed)
    )
    return Setup(quasi, private, size, queries, float(tolerance), seed)
