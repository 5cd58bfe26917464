"""The share of answers that another model still accepts, against a count by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cfk_plugin import (
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.cli import app
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.release.still_true import StillTrue

LEVELS = ["low", "mid", "high"]
QUASI = ("age", "zip", "school")
SECRET = 31_337  # a salary that no message may tell


def people(n: int = 300, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "zip": random.choice(["A", "B", "C"], n),
            "school": random.choice(LEVELS, n),
            "pay": random.integers(0, 100, n).astype(float),
            "job": random.choice(["a", "b"], n),
        }
    )


class Bank:
    """Grants where the score reaches a limit; another limit is another model."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def predict(self, rows: pd.DataFrame) -> Any:
        school = rows["school"].map({level: 6 * i for i, level in enumerate(LEVELS)}).astype(float)
        score = rows["pay"] + rows["age"] + school - 9 * (rows["zip"] == "C")
        return np.where(score >= self.limit, "yes", "no")


TABLE = people()
SCHEMA = Schema.from_frame(
    TABLE,
    quasi_identifiers=list(QUASI),
    ordinal={"school": LEVELS},
    monotone={"school": "increase"},
)
POPULATION = Population.from_frame(TABLE, SCHEMA, key=b"the key of these tests")
OLD = Bank(95)
QUERIES = people(80, seed=1)
REFUSED = QUERIES[OLD.predict(QUERIES) == "no"].reset_index(drop=True)


@cache
def catalogue() -> KAnonymizer:
    return fitted()


def fitted(guarantee: str = "catalogue", desired: Any = "yes", **options: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee, **options)  # type: ignore[arg-type]
    return KAnonymizer(policy=policy).fit(POPULATION, OLD, desired)


def nearest_by_hand(name: str, part: Any, own: Any) -> Any:
    """Return the value of a region that the person would take, looking at all values one by one."""
    if name == "zip":
        return own if own in part else min(part)
    if name == "age":
        candidates = [age for age in {*TABLE["age"], own} if age in part]
        return min(candidates, key=lambda age: abs(age - own))
    candidates = [level for level in LEVELS if level in part]
    permitted = [each for each in candidates if LEVELS.index(each) >= LEVELS.index(own)]
    return min(permitted, key=lambda each: LEVELS.index(each) - LEVELS.index(own))


def row_by_hand(entry: Any, query: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(query)
    for name in QUASI:
        row[name] = nearest_by_hand(name, entry.region[name], query[name])
    for name, value in entry.released.items():
        if isinstance(value, Interval):
            row[name] = min(max(query[name], value.low), value.high)
        else:
            row[name] = value
    return row


def broken_by_hand(explanations: Explanations, model: Bank, queries: pd.DataFrame) -> list[int]:
    broken = []
    for position, entry in enumerate(explanations):
        if entry.status == "released":
            row = row_by_hand(entry, queries.iloc[entry.query].to_dict())
            if model.predict(pd.DataFrame([row]))[0] != "yes":
                broken.append(position)
    return broken


@pytest.mark.parametrize("limit", [80, 95, 97, 105, 300])
@pytest.mark.parametrize("answers", [1, 3])
def test_answers_are_counted_as_by_hand(limit: float, answers: int) -> None:
    explanations = catalogue().explain(REFUSED, answers=answers)
    found = explanations.still_true(Bank(limit), REFUSED)
    assert list(found.broken) == broken_by_hand(explanations, Bank(limit), REFUSED)
    assert found.answers == len(explanations.released) > 20
    assert found.queries == tuple(explanations[i].query for i in found.broken)  # type: ignore[union-attr]
    assert found.still_true == found.answers - len(found.broken)
    assert found.share == pytest.approx(found.still_true / found.answers)


def test_the_model_that_made_a_catalogue_breaks_no_answer_and_a_stricter_one_some() -> None:
    explanations = catalogue().explain(REFUSED)
    assert explanations.still_true(OLD, REFUSED).share == 1
    some = explanations.still_true(Bank(97), REFUSED)
    assert 0 < some.still_true < some.answers
    assert explanations.still_true(Bank(300), REFUSED).share == 0


@pytest.mark.parametrize("guarantee", ["lookup", "reciprocal"])
def test_other_guarantees_are_asked_at_the_nearest_point_too(guarantee: str) -> None:
    anonymizer = fitted(guarantee)
    given = TABLE[(OLD.predict(TABLE) == "yes")].head(len(REFUSED)).reset_index(drop=True)
    factuals = REFUSED.head(len(given))
    explanations = anonymizer.transform(given.head(len(factuals)), factuals)
    for limit in (90, 95, 110):
        found = explanations.still_true(Bank(limit), factuals)
        assert list(found.broken) == broken_by_hand(explanations, Bank(limit), factuals)
    assert found.answers > 5
    assert found.broken


def test_what_a_call_permits_decides_on_the_point() -> None:
    explanations = catalogue().explain(REFUSED, permitted_range={"age": [45, 60]})
    asked: list[pd.DataFrame] = []

    def record(rows: pd.DataFrame) -> Any:
        asked.append(rows)
        return OLD.predict(rows)

    explanations.still_true(record, REFUSED)
    own = REFUSED["age"].to_numpy()[[entry.query for entry in explanations.released]]
    parts = [entry.region["age"] for entry in explanations.generalized]
    expected = [
        min(max(age, part.low, 45), part.high) for age, part in zip(own, parts, strict=True)
    ]
    assert asked[0]["age"].tolist() == expected
    # Some regions hold an age of the person's own that the call does not permit.
    assert any(age in part and age < 45 for age, part in zip(own, parts, strict=True))


def test_bins_are_asked_at_the_number_nearest_to_the_query() -> None:
    schema = Schema.from_frame(
        TABLE,
        quasi_identifiers=list(QUASI),
        ordinal={"school": LEVELS},
        monotone={"school": "increase"},
        bins={"pay": [0, 25, 50, 75, 100]},
    )
    population = Population.from_frame(TABLE, schema, key=b"the key of these tests")
    policy = PrivacyPolicy(k=5, private_values="bins", min_pureness=0.3)
    anonymizer = KAnonymizer(policy=policy).fit(population, OLD, "yes")
    explanations = anonymizer.explain(REFUSED)
    for limit in (95, 100):
        found = explanations.still_true(Bank(limit), REFUSED)
        assert list(found.broken) == broken_by_hand(explanations, Bank(limit), REFUSED)
    assert found.answers > 5


def share_by_hand(entry: Any, model: Bank) -> float:
    values = [
        [value for value in sorted(set(TABLE[name])) if value in entry.region[name]]
        for name in QUASI
    ]
    rows = [dict(zip(QUASI, cell, strict=True)) | dict(entry.released) for cell in product(*values)]
    return float((model.predict(pd.DataFrame(rows)) == "yes").mean())


@pytest.mark.parametrize("limit", [80, 95, 99, 300])
def test_an_entry_of_a_catalogue_needs_the_least_pureness_of_the_policy(limit: float) -> None:
    published = fitted(min_pureness=0.7).published()
    found = published.still_true(Bank(limit))
    shares = [share_by_hand(entry, Bank(limit)) for entry in published]
    assert list(found.broken) == [i for i, share in enumerate(shares) if share < 0.7]
    assert found.answers == len(published) > 5
    assert any(0 < share < 1 for share in shares) == (limit == 99)


def test_with_the_goal_opposite_any_other_outcome_counts() -> None:
    explanations = fitted(desired="opposite").explain(QUERIES)
    assert explanations.still_true(OLD, QUERIES).share == 1
    reversed_model = lambda rows: np.where(OLD.predict(rows) == "yes", "no", "yes")  # noqa: E731
    assert explanations.still_true(reversed_model, QUERIES).share == 0


def test_a_function_as_desired_has_to_be_given_again() -> None:
    explanations = fitted(desired=lambda labels: labels == "yes").explain(REFUSED)
    with pytest.raises(InputError, match="give desired="):
        explanations.still_true(OLD, REFUSED)
    assert explanations.still_true(OLD, REFUSED, desired="yes").share == 1
    with pytest.raises(InputError, match="opposite"):
        explanations.still_true(OLD, REFUSED, desired="opposite")


def test_nobody_is_counted_who_got_no_answer() -> None:
    explanations = catalogue().explain(QUERIES)
    assert any(entry.status == "withheld" for entry in explanations)
    found = explanations.still_true(Bank(300), QUERIES)
    assert found.answers == len(explanations.released)
    nothing = explanations.without_record().still_true(Bank(300), QUERIES)
    assert (nothing.answers, nothing.share, nothing.broken) == (0, None, ())
    assert "No answer was released" in str(nothing)


def test_a_protected_explainer_gives_answers_that_can_be_asked_about() -> None:
    private = protect(None, model=OLD, population=POPULATION, desired="yes", k=5)
    explanations = private.explain(REFUSED)
    found = explanations.still_true(Bank(97), REFUSED)
    assert list(found.broken) == broken_by_hand(explanations, Bank(97), REFUSED)


def test_a_sealed_catalogue_counts_the_same(tmp_path: Path) -> None:
    catalogue().seal(tmp_path / "catalogue.cfk")
    population = Population.open(tmp_path / "catalogue.cfk", key=b"the key of these tests")
    sealed = KAnonymizer().fit(population, OLD, "yes")
    for limit in (95, 97, 110):
        new = Bank(limit)
        found = sealed.explain(REFUSED).still_true(new, REFUSED)
        assert found == catalogue().explain(REFUSED).still_true(new, REFUSED)
        entries = sealed.published().still_true(new)
        assert entries == catalogue().published().still_true(new)


def test_prototypes_are_asked_about_as_they_are() -> None:
    pytest.importorskip("opendp")
    table = TABLE[["age", "pay"]]
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age"],
        bounds={"age": [20, 60], "pay": [0, 100]},
        nullable=[],
    )
    population = Population.from_frame(table, schema)
    fit = DPPrototypes(epsilon=5.0, rows=300).fit(
        population, model=lambda rows: rows["pay"] > 60, desired=True
    )
    explanations = fit.explain(table[table["pay"] <= 60].head(20))
    found = explanations.still_true(lambda rows: rows["pay"] > 80)
    expected = [
        i
        for i, entry in enumerate(explanations)
        if entry.status == "released" and not entry.values["pay"] > 80  # type: ignore[union-attr]
    ]
    assert list(found.broken) == expected
    assert found.answers == len(explanations.prototypes) > 10
    assert explanations.still_true(lambda rows: rows["pay"] > 60).share == 1


def wrong_calls() -> Iterator[Any]:
    probabilities = lambda rows: np.full(len(rows), 0.25)  # noqa: E731
    labelled = type("Labelled", (Bank,), {"classes_": np.array(["maybe", "never"])})(95)
    yield pytest.param(probabilities, ModelError, "fractions", id="fractions")
    yield pytest.param(lambda rows: rows["wage"], ModelError, "raised", id="missing column")
    yield pytest.param(labelled, ModelError, "classes", id="no such outcome")
    yield pytest.param(None, ModelError, "predict", id="no model")


@pytest.mark.parametrize(("model", "error", "text"), [*wrong_calls()])
def test_a_wrong_model_is_refused_and_no_value_told(
    model: Any, error: type[Exception], text: str
) -> None:
    queries = REFUSED.assign(pay=float(SECRET))
    explanations = catalogue().explain(REFUSED)
    with pytest.raises(error, match=text) as raised:
        explanations.still_true(model, queries)
    assert str(SECRET) not in str(raised.value)


def test_the_queries_are_asked_for_where_they_are_needed() -> None:
    explanations = catalogue().explain(REFUSED)
    with pytest.raises(InputError, match="queries="):
        explanations.still_true(OLD)
    with pytest.raises(InputError, match="give all that were asked"):
        explanations.still_true(OLD, REFUSED.head(1))
    with pytest.raises(InputError, match="missing columns"):
        explanations.still_true(OLD, REFUSED.drop(columns="job"))
    by_hand = Explanations(
        explanations[:], policy=explanations.policy, columns=explanations.columns
    )
    with pytest.raises(InputError, match="made by hand"):
        by_hand.still_true(OLD, REFUSED)


def test_probabilities_need_a_threshold_as_in_protect() -> None:
    def chance(rows: pd.DataFrame) -> Any:
        return (rows["pay"] / 200 + 0.25).to_numpy()

    policy = PrivacyPolicy(k=5)
    made_with = Bank(95)
    anonymizer = KAnonymizer(policy=policy)
    anonymizer.fit(POPULATION, lambda rows: (made_with.predict(rows) == "yes").astype(int), 1)
    explanations = anonymizer.explain(REFUSED)
    lenient = explanations.still_true(chance, REFUSED, threshold=0.2)
    strict = explanations.still_true(chance, REFUSED, threshold=0.9)
    assert (lenient.share, strict.share) == (1, 0)


def test_the_figure_is_one_plain_sentence() -> None:
    found = StillTrue(answers=220, broken=tuple(range(8)), queries=tuple(range(8)), policy={})
    sentence = "212 of 220 answers are still true; the new model refuses 8"
    assert str(found) == sentence
    assert sentence in found._repr_html_()
    assert found.to_dict()["share"] == pytest.approx(212 / 220)


# --- cfk verify -----------------------------------------------------------------------------------


def cfk(command: str, code: int) -> str:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with answers, a catalogue and models, as a user of the commands has them."""
    folder = tmp_path_factory.mktemp("made")
    TABLE.to_csv(folder / "train.csv", index=False)
    REFUSED.to_csv(folder / "queries.csv", index=False)
    roles = {
        "quasi_identifiers": list(QUASI),
        "ordinal": {"school": LEVELS},
        "monotone": {"school": "increase"},
    }
    (folder / "schema.json").write_text(json.dumps(roles), encoding="utf-8")
    for limit in (95, 97, 110):
        joblib.dump(Bank(limit), folder / f"{limit}.joblib")
    answers = catalogue().explain(REFUSED)
    (folder / "answers.json").write_text(answers.to_json(), encoding="utf-8")
    (folder / "catalogue.json").write_text(catalogue().published().to_json(), encoding="utf-8")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


VERIFY = "verify {} train.csv -s schema.json -d yes"


@pytest.mark.usefixtures("folder")
def test_the_command_counts_answers_as_the_method_does() -> None:
    options = f"{VERIFY.format('answers.json')} --queries queries.csv --json"
    explanations = catalogue().explain(REFUSED)
    for limit, code in ((95, 0), (97, 1)):
        told = json.loads(cfk(f"{options} -m {limit}.joblib", code))
        expected = explanations.still_true(Bank(limit), REFUSED)
        assert told["still_true"] == {
            "answers": expected.answers,
            "still_true": expected.still_true,
            "share": expected.share,
            "broken": list(expected.broken),
            "queries": list(expected.queries),
        }
        refused = [each["where"] for each in told["findings"] if "not true" in each["problem"]]
        assert refused == [f"explanation {position}" for position in expected.broken]
        assert told["verdict"] == ("fail" if code else "pass")
    assert "that --queries are those that were answered, in this order" in told["not_checked"]


@pytest.mark.usefixtures("folder")
def test_a_catalogue_needs_no_queries() -> None:
    published = catalogue().published()
    for limit, code in ((95, 0), (110, 1)):
        told = cfk(f"{VERIFY.format('catalogue.json')} -m {limit}.joblib", code)
        assert f"\n{published.still_true(Bank(limit))}\n" in told


@pytest.mark.usefixtures("folder")
def test_without_queries_the_command_says_that_nobody_asked() -> None:
    told = cfk(f"{VERIFY.format('answers.json')} -m 95.joblib", 0)
    assert "not checked: that answers are true for the model (--queries)" in told
    assert "still true" not in told
    assert "--queries needs --model" in cfk(
        f"{VERIFY.format('answers.json')} --queries queries.csv", 2
    )


@pytest.mark.usefixtures("folder")
def test_other_queries_than_those_that_were_answered_are_refused(folder: Path) -> None:
    options = f"{VERIFY.format('answers.json')} -m 95.joblib --queries other.csv"
    REFUSED.head(2).to_csv(folder / "other.csv", index=False)
    assert "give all that were asked about" in cfk(options, 2)
    REFUSED.assign(school="high").to_csv(folder / "other.csv", index=False)
    assert "would change school" in cfk(options, 2)
    REFUSED.drop(columns="job").to_csv(folder / "other.csv", index=False)
    assert "missing columns" in cfk(options, 2)


@pytest.mark.usefixtures("folder")
def test_what_a_guarantee_does_not_promise_is_looked_at_by_a_person(folder: Path) -> None:
    """Reciprocal answers are not asked about for the person, so a false one is no wrong file."""
    given = TABLE[OLD.predict(TABLE) == "yes"].head(len(REFUSED)).reset_index(drop=True)
    factuals = REFUSED.head(len(given))
    explanations = fitted("reciprocal").transform(given.head(len(factuals)), factuals)
    (folder / "reciprocal.json").write_text(explanations.to_json(), encoding="utf-8")
    assert explanations.still_true(OLD, factuals).broken
    options = f"{VERIFY.format('reciprocal.json')} -m 95.joblib --queries queries.csv"
    told = cfk(options, 3)
    assert str(explanations.still_true(OLD, factuals)) in told
