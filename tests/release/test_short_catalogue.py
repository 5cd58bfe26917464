"""A short catalogue: entries of the whole one, chosen for refused people, and what it says of them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from cfk_plugin import Explanations, KAnonymizer, Ledger, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError, ModelError, PolicyError
from cfk_plugin.frontier import nearest_points
from cfk_plugin.metrics.information import ncp_by_attribute
from cfk_plugin.protection.partition.region_distance import OUTSIDE
from cfk_plugin.release.publication import publish

K = 4
KEY = b"always the same"
WITHIN = 0.05
QUASI = ["age", "city"]
PRIVATE = ["pay", "job"]
FEATURES = [*QUASI, *PRIVATE]
RULES: dict[str, Any] = {"monotone": {"age": "decrease"}, "immutable": ["city", "job"]}


def people(n: int = 120) -> pd.DataFrame:
    """Return people, most of whom the model refuses; every third has three rows that are alike."""
    random = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "name": [f"canary-name-{i}" for i in range(n)],
            "person": [f"canary-person-{i}" for i in range(n)],
            "age": random.integers(20, 60, n),
            "city": random.choice(["A", "B", "C"], n),
            "pay": random.integers(10, 60, n),
            "job": random.choice(["clerk", "nurse", "smith"], n),
        }
    )
    return pd.concat([table, table.iloc[::3], table.iloc[::3]], ignore_index=True)


TRAIN = people()


def model(rows: pd.DataFrame) -> np.ndarray:
    score = rows["pay"].to_numpy(dtype=float) + rows["age"].to_numpy(dtype=float) / 2
    score = score + 8 * (rows["job"] == "nurse").to_numpy()
    return np.where(score > 56, "yes", "no")


class Wrapped:
    """The same model, for a file."""

    classes_ = np.array(["no", "yes"])

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return model(rows)


def fitted(
    train: pd.DataFrame = TRAIN,
    *,
    rules: dict[str, Any] | None = None,
    desired: Any = "yes",
    ledger: Ledger | None = None,
    **policy: Any,
) -> KAnonymizer:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        identifiers=["name"],
        subject="person",
        **({} if rules is None else rules),
    )
    population = Population.from_frame(train, schema, key=KEY)
    settings = {"k": K, "guarantee": "catalogue", "min_pureness": 0.3, **policy}
    anonymizer = KAnonymizer(policy=PrivacyPolicy(**settings), ledger=ledger)
    return anonymizer.fit(population, model=model, desired=desired)


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    return fitted()


def contents(published: Explanations) -> list[dict[str, Any]]:
    """Return entries without their numbers."""
    entries: list[dict[str, Any]] = json.loads(published.to_json())["explanations"]
    return [{name: entry[name] for name in entry if name != "query"} for entry in entries]


def refused_people(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row of each refused person."""
    return rows[model(rows) == "no"].drop_duplicates("person").reset_index(drop=True)


def costs_by_brute_force(
    anonymizer: KAnonymizer, entries: Explanations, queries: pd.DataFrame
) -> np.ndarray:
    """Return the distance of each query to each entry, from pandas, one pair at a time."""
    population = anonymizer.population_
    width = {"age": float(TRAIN["age"].max() - TRAIN["age"].min())}
    width["pay"] = float(anonymizer.guarantee_.catalogue.private_values[0].ranges["pay"])
    costs = np.full((len(queries), len(entries)), np.inf)
    records = queries[FEATURES].to_dict("records")
    rules = anonymizer.rules_
    for j, entry in enumerate(entries.generalized):
        points = nearest_points([entry] * len(records), records, population)
        is_true = model(population.conform(points)) == str(entry.outcome)
        for i, record in enumerate(records):
            point = points.iloc[i]
            if "city" in rules and point["city"] != record["city"]:
                continue
            if "job" in rules and point["job"] != record["job"]:
                continue
            if "age" in rules and point["age"] > record["age"]:
                continue
            if not is_true[i]:
                continue
            cost = sum(ncp_by_attribute(entry.region, population).values()) / 2
            for name in ("age", "pay"):
                cost += abs(float(point[name]) - float(record[name])) / width[name]
            for name in ("city", "job"):
                cost += point[name] != record[name]
            for name in QUASI:
                cost += OUTSIDE * (point[name] != record[name])
            costs[i, j] = cost
    return costs


@pytest.mark.parametrize("rules", [None, RULES])
def test_the_figures_and_the_promise_are_those_of_a_count_by_hand(
    rules: dict[str, Any] | None,
) -> None:
    anonymizer = fitted(rules=rules)
    whole = anonymizer.published()
    short = anonymizer.published(within=WITHIN)
    about = short.short_catalogue
    assert about is not None
    costs = costs_by_brute_force(anonymizer, whole, refused_people(TRAIN))
    every = contents(whole)
    chosen = [every.index(entry) for entry in contents(short)]
    assert chosen == sorted(chosen)
    assert (about.entries, about.of, about.within) == (len(short), len(whole), WITHIN)
    assert 0 < about.entries < about.of / 2
    is_reached = np.isfinite(costs).any(axis=1)
    assert (np.isfinite(costs[:, chosen]).any(axis=1) == is_reached).all()
    assert about.reached == np.floor(100 * is_reached.mean() + 1e-9) / 100
    best = costs[is_reached].min(axis=1).mean()
    part = costs[is_reached][:, chosen].min(axis=1).mean()
    assert part <= (1 + WITHIN) * best + 1e-9
    assert about.relative_cost == round(part / best, 2)
    for dropped in chosen:
        rest = costs[is_reached][:, [i for i in chosen if i != dropped]].min(axis=1)
        assert rest.mean() > (1 + WITHIN) * best
    for rule in about.rules:
        reached = costs[:, chosen[rule.query]]
        reached = reached[np.isfinite(reached)]
        assert rule.reached == np.floor(100 * len(reached) / len(costs) + 1e-9) / 100
        assert rule.distance == round(reached.mean(), 2)
    reached_by_rules = np.isfinite(costs[:, [chosen[rule.query] for rule in about.rules]])
    share = reached_by_rules.any(axis=1).mean()
    assert about.reached_by_rules == np.floor(100 * share + 1e-9) / 100


def test_schema_rules_leave_people_without_an_answer() -> None:
    about = fitted(rules=RULES).published(within=WITHIN).short_catalogue
    assert about is not None
    assert 0 < about.reached < 1


@pytest.mark.parametrize("form", ["shared", "exact", "bins"])
@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_every_form_of_private_values_has_a_short_part(form: str, desired: str) -> None:
    train = TRAIN.drop(columns="name")
    schema = Schema.from_frame(
        train, quasi_identifiers=QUASI, subject="person", bins={"pay": [0, 30, 60]}
    )
    population = Population.from_frame(train, schema)
    policy = PrivacyPolicy(
        k=K, private_values=form, rare_values="withhold" if form == "bins" else "release"
    )
    anonymizer = KAnonymizer(policy=policy).fit(population, model=model, desired=desired)
    whole = contents(anonymizer.published())
    short = anonymizer.published(within=WITHIN)
    assert all(entry in whole for entry in contents(short))
    assert len(short) < len(whole)


def test_the_whole_catalogue_says_nothing_of_a_part(anonymizer: KAnonymizer) -> None:
    whole = anonymizer.published()
    assert whole.short_catalogue is None
    assert "short_catalogue" not in json.loads(whole.to_json())


def test_a_slice_of_a_short_catalogue_is_none(anonymizer: KAnonymizer) -> None:
    assert anonymizer.published(within=WITHIN)[:1].short_catalogue is None


def test_a_short_part_does_not_depend_on_the_order_of_rows(
    anonymizer: KAnonymizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = TRAIN.sample(frac=1, random_state=1, ignore_index=True)
    again = fitted(turned)
    for most in (1000, 20):
        monkeypatch.setattr("cfk_plugin.release.shortening.MOST_PEOPLE", most)
        short = anonymizer.published(within=WITHIN)
        assert again.published(within=WITHIN) == short
        assert again.published(within=WITHIN).short_catalogue == short.short_catalogue


def test_the_model_is_asked_once_about_each_person_and_entry(
    anonymizer: KAnonymizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_entries = len(anonymizer.published())
    before = anonymizer.model_.rows
    anonymizer.published()
    for_all = anonymizer.model_.rows - before
    for most in (1000, 20):
        monkeypatch.setattr("cfk_plugin.release.shortening.MOST_PEOPLE", most)
        n_people = min(len(refused_people(TRAIN)), most)
        before = anonymizer.model_.rows
        anonymizer.published(within=WITHIN)
        assert anonymizer.model_.rows - before == for_all + n_people * n_entries


@pytest.mark.parametrize("within", [-0.01, 1.01, 3, float("nan"), True, "0.03", np.inf])
def test_a_wrong_within_is_refused(anonymizer: KAnonymizer, within: Any) -> None:
    with pytest.raises(InputError, match=r"within must be a number from 0 to 1, got .* 3 %"):
        anonymizer.published(within=within)


def test_sealed_populations_are_told_what_to_do(anonymizer: KAnonymizer, tmp_path: Path) -> None:
    anonymizer.seal(tmp_path / "people.cfk")
    sealed = KAnonymizer().fit(Population.open(tmp_path / "people.cfk", key=KEY), model, "yes")
    assert len(sealed.published()) == len(anonymizer.published())
    with pytest.raises(PolicyError, match="publish where the rows are"):
        sealed.published(within=WITHIN)


def test_without_refused_people_it_says_what_to_do() -> None:
    accepted = TRAIN[model(TRAIN) == "yes"]
    with pytest.raises(PolicyError, match="publish the whole catalogue, without within="):
        fitted(accepted).published(within=WITHIN)


def test_a_failing_model_tells_nothing_of_rows(caplog: pytest.LogCaptureFixture) -> None:
    is_broken = False

    def fails_later(rows: pd.DataFrame) -> np.ndarray:
        if is_broken and len(rows) > 1000:
            raise ValueError(str(rows))
        return model(rows)

    population = fitted().population_
    policy = PrivacyPolicy(k=K, min_pureness=0.3)
    anonymizer = KAnonymizer(policy=policy).fit(population, model=fails_later, desired="yes")
    is_broken = True
    with caplog.at_level(logging.DEBUG), pytest.raises(ModelError) as raised:
        anonymizer.published(within=WITHIN)
    for text in (str(raised.getrepr(style="long")), caplog.text):
        assert "clerk" not in text
        assert "canary" not in text


def test_nothing_of_refused_people_is_logged_or_shown(
    anonymizer: KAnonymizer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        short = anonymizer.published(within=WITHIN)
    texts = (caplog.text, repr(short.short_catalogue), str(short.short_catalogue), short.to_json())
    for text in texts:
        assert "canary" not in text


def test_an_earlier_catalogue_bounds_the_values_of_a_short_one(anonymizer: KAnonymizer) -> None:
    earlier = anonymizer.published(within=WITHIN)
    grown = fitted(people(300))
    later = grown.published(previous=earlier, within=WITHIN)
    known = {tuple(entry.released.values()) for entry in earlier.generalized}
    assert {tuple(entry.released.values()) for entry in later.generalized} <= known
    assert later.short_catalogue is not None
    assert later.short_catalogue.of == len(grown.published(previous=earlier))


@pytest.mark.parametrize("form", ["shared", "exact"])
def test_a_ledger_records_all_entries_that_answers_are_made_of(tmp_path: Path, form: str) -> None:
    with Ledger(tmp_path / "ledger.db", create=True) as ledger:
        anonymizer = fitted(ledger=ledger, private_values=form)
        short = anonymizer.published(within=WITHIN)
        records = ledger.status().records
        whole = anonymizer.published()
        assert ledger.status().records == records
        assert all(entry in contents(whole) for entry in contents(short))
        assert anonymizer.published(within=WITHIN) == short
        assert len(short) < len(whole)


# --- as files of the command line ---


def cfk(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), env={"CFK_KEY": ""})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a short catalogue in each form of file."""
    folder = tmp_path_factory.mktemp("short")
    TRAIN.to_csv(folder / "train.csv", index=False)
    schema = {"quasi_identifiers": QUASI, "identifiers": ["name"], "subject": "person"}
    (folder / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    joblib.dump(Wrapped(), folder / "model.joblib")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in ("parquet", "csv", "json"):
            result = cfk(
                "catalogue train.csv -s schema.json -m model.joblib -d yes --k 4 --within 0.05"
                f" -o short.{kind}"
            )
            assert result.exit_code == 0, result.output
            assert "times the distance of the whole catalogue" in result.output
    return folder


VERIFY = "train.csv -s schema.json -m model.joblib -d yes"


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_short_catalogue_passes_as_it_was_written(
    made: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    for options in ("", " --rerun"):
        result = cfk(f"verify short.{kind} {VERIFY}{options}")
        assert result.exit_code == 0, result.output
    assert "that a short catalogue has the entries that help the most" in result.output


@pytest.mark.parametrize(
    ("change", "options", "problem"),
    [
        ({"entries": 1}, "", "does not have as many entries as it says"),
        ({"of": 1}, "", "does not have as many entries as it says"),
        ({"of": 999}, " --rerun", "is not how many entries the catalogue has"),
        ({"relative_cost": 1.06}, "", "is above what within allows"),
        ({"reached": 0.0}, "", "is above what all entries reach"),
        ({"rules": [{"query": 999, "reached": 1, "distance": 1}]}, "", "are not different entries"),
        ({"people": 7}, "", "short_catalogue"),
    ],
)
def test_altered_figures_fail(
    made: Path,
    change: dict[str, Any],
    options: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(made)
    content = json.loads(Path("short.json").read_text(encoding="utf-8"))
    content["short_catalogue"].update(change)
    Path("changed.json").write_text(json.dumps(content), encoding="utf-8")
    result = cfk(f"verify changed.json {VERIFY}{options}")
    assert result.exit_code == 1, result.output
    assert problem in " ".join(result.output.split())


def test_an_entry_that_the_catalogue_does_not_have_fails(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    content = json.loads(Path("short.json").read_text(encoding="utf-8"))
    content["explanations"][-1]["released"]["pay"] = 59
    Path("changed.json").write_text(json.dumps(content), encoding="utf-8")
    result = cfk(f"verify changed.json {VERIFY} --rerun")
    assert result.exit_code == 1, result.output
    assert "is no entry of the catalogue" in " ".join(result.output.split())


def test_a_wrong_within_is_refused_before_files_are_read() -> None:
    result = cfk("catalogue no.csv -s no.json -m no.joblib -d yes --within 3 -o short.json")
    assert result.exit_code == 2
    assert "within must be a number from 0 to 1" in " ".join(result.output.split())


def test_publish_and_a_short_catalogue_agree_on_the_order(anonymizer: KAnonymizer) -> None:
    short = anonymizer.published(within=WITHIN)
    assert publish(short.generalized) == list(short.generalized)
