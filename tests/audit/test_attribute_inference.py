"""Attribute inference: guesses recounted by plain loops, and owners that answer with rows, regions
and prototypes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Attribute,
    DPPrototypes,
    Explanations,
    Interval,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    protect,
)
from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest

LINKAGE, SINGLED_OUT = "attribute_inference_linkage", "attribute_inference_singled_out"
QUASI = ["age", "town"]
Explain = Callable[[pd.DataFrame], pd.DataFrame | Explanations]


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["score"] > 0.5)


@dataclass
class Owner:
    """An owner whose model looks at the score alone and never learns; keeps its table, and who
    asked for what.
    """

    explainer: Callable[[pd.DataFrame], Explain]
    name: str = "small"
    generous: bool = True
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    asked: list[Any] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> Any:
        self.table = people.X
        return Service(self, self.explainer(people.X))


@dataclass
class Service:
    owner: Owner
    explainer: Explain

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return X["score"].to_numpy(dtype=float)

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return model(X) & self.owner.generous

    def explain(self, X: pd.DataFrame) -> Answers:
        found = self.explainer(X)
        self.owner.asked.append((X, found))
        if isinstance(found, Explanations):
            given = np.array([entry.status == "released" for entry in found])
            return Answers(X.assign(**dict.fromkeys(X)), given, found)
        return Answers(found, found.notna().any(axis=1).to_numpy())


def rows(table: pd.DataFrame) -> Explain:
    return NearestUnlikeNeighbour(table, model, True).explain


def looked_up(table: pd.DataFrame, **declared: Any) -> Explain:
    people = Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=QUASI, **declared)
    )
    explainer = NearestUnlikeNeighbour(table, model, True)
    return protect(
        explainer,
        model=model,
        population=people,
        desired=True,
        policy=PrivacyPolicy(guarantee="lookup", k=10),
    ).explain


def ranked(table: pd.DataFrame) -> Explain:
    # ranges of ranks, which people have as texts
    return looked_up(table, ordinal={"town": list("ABC")})


class Anything:
    """Proposes ranges of ages and sets of towns around everybody, by chance."""

    name = "anything"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        random = np.random.default_rng(request.random_state)
        people = request.population.row_codes.decode(request.rows)
        ages = request.population.column("age")
        proposals = []
        for age, town in zip(people["age"], people["town"], strict=True):
            down, up = random.integers(0, 12, 2)
            others = random.choice(list("ABC"), int(random.integers(1, 3)))
            low = int(ages[ages >= age - down].min())
            high = int(ages[ages <= age + up].max())
            towns = frozenset({town, *others})
            proposals.append(Proposal(Region({"age": Interval(low, high), "town": towns})))
        return proposals


def overlapping(table: pd.DataFrame) -> Explain:
    schema = Schema.from_frame(table, quasi_identifiers=QUASI)
    policy = PrivacyPolicy(k=2, guarantee="lookup")
    return protect(
        NearestUnlikeNeighbour(table, model, True),
        model=model,
        population=Population.from_frame(table, schema),
        desired=True,
        policy=policy,
        method=Anything(),
    ).explain


def drawn(table: pd.DataFrame) -> Explain:
    schema = Schema.from_frame(
        table,
        quasi_identifiers=QUASI,
        columns={
            "age": Attribute(bounds=(0, 60), whole=True),
            "score": Attribute(bounds=(0, 1)),
            "pay": Attribute(bounds=(0, 100), whole=True),
            "town": Attribute(categories=list("ABCD")),
            "ill": Attribute(categories=list("abcde")),
        },
        nullable=[],
    )
    return (
        DPPrototypes(1.0, rows=2000, random_state=0)
        .fit(Population.from_frame(table, schema), model, True)
        .explain
    )


def people(n: int = 600, seed: int = 0, ages: int = 60, towns: str = "ABCD") -> Sample:
    """Return people whose private attributes have nothing to do with their quasi-identifiers."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": random.integers(0, ages, n),
            "town": random.choice(list(towns), n),
            "score": random.random(n).round(3),
            "pay": random.integers(0, 101, n),
            "ill": random.choice(list("abcde"), n),
        }
    )
    return Sample(X, X["score"].to_numpy() > 0.5)


def attack(
    explainer: Callable[[pd.DataFrame], Explain], sample: Sample, **settings: Any
) -> AttackReport:
    return attribute_inference(Owner(explainer), sample, **{"quasi_identifiers": QUASI, **settings})


# --- guesses, recounted ---------------------------------------------------------------------------

Person = Mapping[str, Any]
Said = tuple[Callable[[Person], bool], Mapping[str, Any]]


def said(answers: Any) -> list[tuple[str, Said]]:
    """Return of each answer its text, whom it fits, and what it says of private attributes."""
    found: list[tuple[str, Said]] = []
    if isinstance(answers, Explanations):
        for entry in answers.released:
            values = dict(entry.released)
            found.append(
                (
                    f"{entry.region}{sorted(values.items(), key=str)}",
                    (entry.region.contains, values),
                )
            )
        return found
    fits = lambda row: lambda person: all(person[q] == row[q] for q in QUASI)  # noqa: E731
    return [(str(row), (fits(row), row)) for row in answers.dropna(how="all").to_dict("records")]


def right(guess: Any, person: Person, name: str, width: float) -> bool:
    if isinstance(guess, Interval) and guess.low != guess.high:
        return bool(guess.low <= person[name] <= guess.high)
    if name in ("pay", "score"):
        value = guess.low if isinstance(guess, Interval) else guess
        return abs(person[name] - value) <= 0.05 * width + 1e-9
    return bool(person[name] in guess if isinstance(guess, frozenset) else person[name] == guess)


def guessed(
    distinct: list[Said], table: list[Person], crowd: list[Person], name: str, width: float
) -> list[bool]:
    """Guess person by person, answer by answer; say of everybody about whom something is guessed if
    it is right.
    """
    often = Counter(values[name] for _, values in distinct if name in values)
    weights = [1 / sum(map(fits, table)) for fits, _ in distinct]
    hits = []
    for person in crowd:
        votes: dict[Any, float] = {}
        for (fits, values), weight in zip(distinct, weights, strict=True):
            if name in values and fits(person):
                votes[values[name]] = votes.get(values[name], 0.0) + weight
        if votes:
            hits.append(
                right(max(votes, key=lambda v: (round(votes[v], 9), often[v])), person, name, width)
            )
    return hits


@pytest.mark.parametrize("explainer", [rows, looked_up, ranked, overlapping])
@pytest.mark.parametrize("seed", range(2))
def test_guesses_are_those_of_plain_loops(
    explainer: Callable[[pd.DataFrame], Explain], seed: int
) -> None:
    sample = people(160, seed, ages=25, towns="ABC")
    owner = Owner(explainer, generous=False)  # whoever is not in the table asks, or is the control
    report = attribute_inference(
        owner, sample, quasi_identifiers=QUASI, private=["pay", "ill"], queries=1000
    )
    ((queries, answers),) = owner.asked
    table = owner.table.to_dict("records")
    asked = queries.to_dict("records")
    control = [row for row in sample.X.to_dict("records") if row not in table and row not in asked]
    every = said(answers)
    distinct = list(dict(every).values())
    sizes = [sum(map(fits, table)) for _, (fits, _) in every]
    pooled = report[LINKAGE].figures
    assert pooled["answers"] == report[LINKAGE].n == len(every) > 5
    assert pooled["fits_one"] == pytest.approx(np.mean(np.array(sizes) == 1))
    assert pooled["unanswered"] == pytest.approx(1 - len(every) / len(queries))
    all_hits: list[bool] = []
    for name in ("pay", "ill"):
        width = sample.X["pay"].max() - sample.X["pay"].min()
        hits, found = guessed(distinct, table, table, name, width), report[f"{LINKAGE}/{name}"]
        all_hits += hits
        assert found.main.value == pytest.approx(np.mean(hits))
        assert found.figures["people_guessed"] == len(hits) > 5
        of_control = guessed(distinct, table, control, name, width)
        assert found.control is not None
        assert found.control.value == pytest.approx(np.mean(of_control))
        assert found.figures["control_people"] == len(of_control) > 2
        shares = [
            np.mean([right(values[name], person, name, width) for person in table if fits(person)])
            for _, (fits, values) in every
            if name in values
        ]
        assert found.figures["each_answer"] == pytest.approx(np.mean(shares))
    assert report[LINKAGE].main.value == pytest.approx(np.mean(all_hits))


def test_a_unique_person_is_guessed_right() -> None:
    sample = people(300)
    sample.X["age"] = np.arange(300)
    found = attack(rows, sample, quasi_identifiers=["age"])
    linked = found[LINKAGE]
    assert (linked.main.value, linked.main.high, linked.worked) == (1.0, 1.0, True)
    assert linked.main.n == linked.figures["people_guessed"] > 5  # one place each
    assert linked.main.low == pytest.approx(0.025 ** (1 / linked.main.n))
    assert linked.control is not None
    assert (linked.control.n, linked.figures["control_people"]) == (0, 0)
    assert (linked.figures["fits_one"], linked.figures["fits_nobody"]) == (1, 0)
    assert (found[SINGLED_OUT].main, found[SINGLED_OUT].figures["share_of_answers"]) == (
        linked.main,
        1,
    )
    assert linked.baseline.value < 0.6


def test_the_baseline_learns_from_quasi_identifiers_at_the_width_of_the_guesses() -> None:
    sample = people(600, ages=4)
    sample.X["pay"] = 30.0 * sample.X["age"] + sample.X["pay"] / 101
    found = attack(rows, sample, private=["pay", "ill"])
    assert found[f"{LINKAGE}/pay"].baseline.value == 1.0  # windows of a tenth of the range
    assert found[f"{LINKAGE}/ill"].baseline.value < 0.4


# --- what kinds of answers tell -------------------------------------------------------------------


def test_rows_tell_more_of_people_in_the_table_than_of_others() -> None:
    found = attack(rows, people(), private=["pay", "ill"])
    assert [result.attack for result in found] == [
        LINKAGE,
        SINGLED_OUT,
        f"{LINKAGE}/pay",
        f"{LINKAGE}/ill",
    ]
    singled, ill = found[SINGLED_OUT], found[f"{LINKAGE}/ill"]
    assert singled.worked
    assert singled.figures["advantage_low"] > 0.2
    assert singled.control is not None
    # a fifth of the ills, a tenth of the pays
    assert singled.control.low < 0.15 < singled.control.high
    assert ill.baseline.low < 0.2 < ill.baseline.high
    assert ill.main.value > 0.5


def test_k_anonymous_regions_tell_no_more_of_the_table_than_a_tenth() -> None:
    found = attack(looked_up, people(), private=["pay", "ill"])
    linked, singled = found[LINKAGE], found[SINGLED_OUT]
    assert linked.n > 50
    assert linked.figures["fits_one"] == singled.figures["people_guessed"] == 0.0
    assert (singled.main.low, singled.main.high, singled.worked) == (0.0, 1.0, False)
    assert linked.control is not None
    assert linked.control.n > 5
    # One of at least ten is whose values were released, and guessed right.
    assert found[f"{LINKAGE}/ill"].main.value < 0.2 + 0.1 * 0.8 + 0.05
    assert linked.figures["advantage_low"] < 0.1


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_prototypes_tell_of_the_table_what_they_tell_of_others() -> None:
    linked = attack(drawn, people(1500, ages=20))[LINKAGE]
    assert linked.figures["people_guessed"] > 100
    assert linked.figures["advantage_low"] <= 0 <= linked.figures["advantage_high"]
    assert linked.figures["advantage_high"] - linked.figures["advantage_low"] < 0.3


def test_nobody_asks_or_gets_an_answer() -> None:
    unanswered = attack(
        lambda table: lambda queries: queries.assign(**dict.fromkeys(queries)), people(60)
    )[LINKAGE]
    assert (unanswered.n, unanswered.figures["unanswered"]) == (0, 1.0)
    assert (unanswered.main.low, unanswered.main.high, unanswered.worked) == (0.0, 1.0, False)
    everybody = people(60)
    everybody.X["score"] = 1.0
    unasked = attack(rows, everybody)[LINKAGE]
    assert unasked.n == 0
    assert np.isnan(unasked.figures["unanswered"])


def test_no_value_of_a_person_leaves(mlflow_store: str) -> None:
    sample = people(120)
    sample.X["ill"] = [f"CANARY-{i:03d}" for i in range(120)]
    sample.X["town"] = [f"CANARY-{i // 3:03d}" for i in range(120)]
    sample.X["pay (€)"] = sample.X.pop("pay") * 1_000_003 + 7
    report = attack(rows, sample)
    assert report[LINKAGE].figures["people_guessed"] > 0
    written = report.to_json() + repr(report) + str(report.to_frame().to_dict())
    assert "CANARY" not in written
    assert not any(str(value) in written for value in sample.X["pay (€)"] if value > 7)
    run = MlflowClient(mlflow_store).get_run(report.log(tracking_uri=mlflow_store))
    assert (
        run.data.metrics[f"audit/{LINKAGE}/pay ___/main"] == report[f"{LINKAGE}/pay (€)"].main.value
    )
    assert "CANARY" not in json.dumps(
        [run.data.to_dictionary(), run.info.to_proto().SerializeToString().hex()]
    )


def test_answers_that_cannot_be_read_show_no_value() -> None:
    def failing(table: pd.DataFrame) -> Explain:
        return lambda queries: table.head(len(queries)).assign(
            town=[["CANARY"]] * min(len(queries), len(table))
        )

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        attack(failing, people(50))
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quasi_identifiers": "age"}, "lists of columns"),
        ({"quasi_identifiers": []}, "quasi-identifiers must be one column"),
        ({"quasi_identifiers": ["height"]}, "no columns of the sample: height"),
        ({"private": []}, "private attributes must be one column"),
        ({"private": ["age"]}, "once"),
        ({"n_train": 49}, "fewer than 2 people"),
        ({"n_train": 0}, "n_train must be"),
        ({"queries": True}, "queries must be"),
        ({"tolerance": 0.5}, "tolerance must be"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attack(rows, people(50), **settings)
