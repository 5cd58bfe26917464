"""The whole attack: owners that answer with rows, regions and prototypes, against made people."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import DPPrototypes, Explanations, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.audit.attribute_inference import (
    ALL,
    CONTROL_ALL,
    CONTROL_RIGHT,
    RIGHT,
    Run,
    Setup,
    attribute_inference,
)
from cfk_plugin.audit.targets import Answers, Kept, Sample
from cfk_plugin.errors import InputError

LINKAGE, SINGLED_OUT = "attribute_inference_linkage", "attribute_inference_singled_out"
QUASI = ["age", "town"]


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["score"] > 0.5)


Explain = Callable[[pd.DataFrame], pd.DataFrame | Explanations]


@dataclass
class Small:
    """An owner whose model looks at the score alone and never learns; it keeps what it was trained on, for tests."""

    name: str
    explainer: Callable[[pd.DataFrame], Explain]
    trained: list[pd.DataFrame] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> TrainedTarget:
        self.trained.append(people.X)
        return TrainedTarget(self.explainer(people.X))


@dataclass
class TrainedTarget:
    """Answers with an explainer."""

    explainer: Explain

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return X["score"].to_numpy(dtype=float)

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return model(X)

    def explain(self, X: pd.DataFrame) -> Answers:
        found = self.explainer(X)
        if isinstance(found, Explanations):
            given = np.array([entry.status == "released" for entry in found])
            return Answers(X.assign(**dict.fromkeys(X)), given, found)
        return Answers(found, found.notna().any(axis=1).to_numpy())


def rows(table: pd.DataFrame) -> Explain:
    return NearestUnlikeNeighbour(table, model, True).explain


def reciprocal(table: pd.DataFrame) -> Explain:
    schema = Schema.from_frame(table, quasi_identifiers=QUASI)
    explainer = NearestUnlikeNeighbour(table, model, True)
    people = Population.from_frame(table, schema)
    return protect(explainer, model=model, population=people, desired=True, policy=PrivacyPolicy(k=10)).explain


def drawn(table: pd.DataFrame) -> Explain:
    domains = {"age": (0, 60), "score": (0, 1), "pay": (0, 100)}
    schema = Schema.from_frame(
        table,
        quasi_identifiers=QUASI,
        bounds=domains,
        categories={"town": list("ABCD"), "ill": list("abcde")},
        nullable=[],
        whole=["age", "pay"],
    )
    return DPPrototypes(1.0, rows=2000, seed=0).fit(Population.from_frame(table, schema), model, True).explain


def people(n: int = 600, seed: int = 0, ages: int = 60) -> Sample:
    """Return people whose private attributes have nothing to do with their quasi-identifiers."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": random.integers(0, ages, n),
            "town": random.choice(list("ABCD"), n),
            "score": random.random(n).round(3),
            "pay": random.integers(0, 101, n),
            "ill": random.choice(list("abcde"), n),
        }
    )
    return Sample(X, X["score"].to_numpy() > 0.5)


def test_a_unique_person_is_guessed_right() -> None:
    sample = people(300)
    sample.X["age"] = np.arange(300)
    found = attribute_inference(Small("rows", rows), sample, quasi_identifiers=["age"])
    linked = found[LINKAGE]
    assert (linked.main.value, linked.main.high) == (1.0, 1.0)
    assert linked.main.n == linked.figures["people_guessed"] > 5  # one place each
    assert linked.main.low == pytest.approx(0.025 ** (1 / linked.main.n))
    assert linked.control is not None
    assert (linked.control.n, linked.figures["control_people"]) == (0, 0)
    assert linked.figures["fits_one"] == linked.figures["each_answer"] == 1.0
    assert linked.figures["unanswered"] == linked.figures["fits_nobody"] == 0.0
    assert linked.n == linked.figures["answers"] >= linked.main.n
    assert found[SINGLED_OUT].main == linked.main
    assert found[SINGLED_OUT].figures["share_of_answers"] == 1.0
    assert linked.worked
    assert linked.baseline.value < 0.6


def test_rows_tell_more_of_people_in_the_table_than_of_others() -> None:
    found = attribute_inference(Small("rows", rows), people(), quasi_identifiers=QUASI, private=["pay", "ill"])
    assert [result.attack for result in found] == [LINKAGE, SINGLED_OUT, f"{LINKAGE}/pay", f"{LINKAGE}/ill"]
    singled, ill = found[SINGLED_OUT], found[f"{LINKAGE}/ill"]
    assert singled.worked
    assert singled.figures["advantage_low"] > 0.2
    assert singled.control is not None
    assert singled.control.low < 0.15 < singled.control.high  # a fifth of the ills, a tenth of the pays
    assert ill.baseline.low < 0.2 < ill.baseline.high
    assert ill.main.value > 0.5


def test_k_anonymous_regions_tell_no_more_of_the_table_than_a_tenth() -> None:
    owner = Small("reciprocal", reciprocal)
    found = attribute_inference(owner, people(), quasi_identifiers=QUASI, private=["pay", "ill"])
    linked, singled = found[LINKAGE], found[SINGLED_OUT]
    assert linked.n > 50
    assert linked.figures["fits_one"] == singled.figures["people_guessed"] == 0.0
    assert (singled.main.low, singled.main.high, singled.worked) == (0.0, 1.0, False)
    assert linked.control is not None
    assert linked.control.n > 5
    # One of at least ten is whose values were released, and guessed right.
    ill = found[f"{LINKAGE}/ill"]
    assert ill.main.value < 0.2 + 0.1 * 0.8 + 0.05
    assert linked.figures["advantage_low"] < 0.1
    assert found.to_dict()["policy"] is None


def test_counts_of_regions_are_those_of_plain_loops() -> None:
    owner, sample = Small("reciprocal", reciprocal), people(150, seed=4)
    setup = Setup(tuple(QUASI), ("score", "ill"), 90, 20, 0.05, 0)
    found = Run(owner, sample, setup)()
    table, own, control = (sample.X.take(at) for at in setup.split(len(sample)))
    assert table.reset_index(drop=True).equals(owner.trained[0])
    undesired = own[~model(own)].head(20)
    entries = reciprocal(table.reset_index(drop=True))(undesired.reset_index(drop=True)).released  # type: ignore[union-attr]
    distinct = {(entry.region, tuple(entry.released.items())): entry for entry in entries}.values()
    often = Counter(entry.released["ill"] for entry in distinct)

    def tally(crowd: pd.DataFrame) -> tuple[int, int]:
        right = everybody = 0
        for person in crowd.to_dict("records"):
            votes: dict[str, float] = {}
            for entry in distinct:
                if entry.region.contains(person):
                    votes.setdefault(entry.released["ill"], 0.0)
                    votes[entry.released["ill"]] += 1 / entry.certificate.k
            if votes:
                everybody += 1
                right += max(votes, key=lambda ill: (round(votes[ill], 9), often[ill])) == person["ill"]
        return right, everybody

    counts = found["counts"][1].sum(axis=0)
    assert tuple(counts[[RIGHT, ALL]]) == tally(table)
    assert tuple(counts[[CONTROL_RIGHT, CONTROL_ALL]]) == tally(control)
    assert found["guessed"][0].tolist() == [tally(table)[1], tally(control)[1]]
    assert min(found["guessed"][0]) > 10
    assert sorted(found["sizes"]) == sorted(entry.certificate.k for entry in entries)


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_prototypes_tell_of_the_table_what_they_tell_of_others() -> None:
    found = attribute_inference(Small("dp", drawn), people(1500, ages=20), quasi_identifiers=QUASI)
    linked = found[LINKAGE]
    assert linked.figures["people_guessed"] > 100
    assert linked.figures["advantage_low"] <= 0 <= linked.figures["advantage_high"]
    assert linked.figures["advantage_high"] - linked.figures["advantage_low"] < 0.3


def test_no_value_of_a_person_leaves(tmp_path: Path, mlflow_store: str) -> None:
    sample = people(120)
    sample.X["ill"] = [f"CANARY-{i:03d}" for i in range(120)]
    sample.X["town"] = [f"CANARY-{i // 3:03d}" for i in range(120)]
    sample.X["pay (€)"] = sample.X.pop("pay") * 1_000_003 + 7
    report = attribute_inference(Small("rows", rows), sample, quasi_identifiers=["age", "town"], kept=Kept(tmp_path))
    assert report[LINKAGE].figures["people_guessed"] > 0
    written = report.to_json() + repr(report) + str(report.to_frame().to_dict())
    written += "".join(file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file())
    assert "CANARY" not in written
    assert not any(str(value) in written for value in sample.X["pay (€)"] if value > 7)
    run = MlflowClient(mlflow_store).get_run(report.log(tracking_uri=mlflow_store))
    assert run.data.metrics[f"audit/{LINKAGE}/pay ___/main"] == report[f"{LINKAGE}/pay (€)"].main.value
    assert "CANARY" not in json.dumps([run.data.to_dictionary(), run.info.to_proto().SerializeToString().hex()])


def failing(table: pd.DataFrame) -> Explain:
    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        return table.head(len(queries)).assign(town=[["CANARY"]] * min(len(queries), len(table)))

    return explain


def test_answers_that_cannot_be_read_show_no_value() -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        attribute_inference(Small("odd", failing), people(50), quasi_identifiers=QUASI)
    assert "CANARY" not in "".join(traceback.format_exception(caught.value))


def test_nobody_asks_or_gets_an_answer() -> None:
    def silent(table: pd.DataFrame) -> Explain:
        return lambda queries: queries.assign(**dict.fromkeys(queries))

    unanswered = attribute_inference(Small("silent", silent), people(60), quasi_identifiers=QUASI)[LINKAGE]
    assert (unanswered.n, unanswered.figures["unanswered"]) == (0, 1.0)
    assert (unanswered.main.low, unanswered.main.high, unanswered.worked) == (0.0, 1.0, False)
    everybody = people(60)
    everybody.X["score"] = 1.0
    unasked = attribute_inference(Small("rows", rows), everybody, quasi_identifiers=QUASI)[LINKAGE]
    assert unasked.n == 0
    assert np.isnan(unasked.figures["unanswered"])


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
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attribute_inference(Small("rows", rows), people(50), **{"quasi_identifiers": QUASI, **settings})  # type: ignore[arg-type]
