from __future__ import annotations

import json
import pickle
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.audit import ATTACKS, AuditReport, Setting, nearest_row, run_linkage_audit, steering
from cfk_plugin.audit.linkage import policy_of
from cfk_plugin.errors import InputError, NotFittedError, PolicyError, TrackingError

N = 90
QUASI = ["age", "town", "seen"]
FEATURES = [*QUASI, "pay", "note"]


def table() -> pd.DataFrame:
    """Return rows in which no value occurs twice, and none by chance anywhere else."""
    random = np.random.default_rng(12)
    order = [random.permutation(N) for _ in range(4)]
    return pd.DataFrame(
        {
            "age": 730_000_019 + 7_919 * order[0],
            "town": [f"CANARY-TOWN-{i:03d}-{secrets.token_hex(4)}" for i in order[1]],
            "seen": pd.Timestamp("2011-07-03 05:17:43.918273") + pd.to_timedelta(order[2] * 1_234_567_891, unit="us"),
            "pay": 860_000_011 + 104_729 * order[3],
            "note": [f"CANARY-NOTE-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
        }
    )


TABLE = table()
CUT = int(TABLE["pay"].median()) - 17
TRAIN, HOLDOUT = TABLE.head(60).reset_index(drop=True), TABLE.tail(30).reset_index(drop=True)
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=QUASI)
VALUES = {
    *TABLE["age"].astype(str),
    *TABLE["pay"].astype(str),
    *TABLE["town"],
    *TABLE["note"],
    *TABLE["seen"].astype(str),
    *(value.isoformat() for value in TABLE["seen"]),
}


def rich(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > CUT).to_numpy()


def setting(guarantee: str = "nominal", **options: Any) -> Setting:
    policy = PrivacyPolicy(k=4, guarantee=guarantee, objective="ncp")  # type: ignore[arg-type]
    anonymizer = KAnonymizer(policy=policy, seed=2).fit(Population.from_frame(TRAIN, SCHEMA), rich, True)
    return Setting(anonymizer, TRAIN[rich(TRAIN)].head(5), **options)


@pytest.fixture(scope="module")
def report() -> AuditReport:
    return run_linkage_audit(setting(holdout=HOLDOUT))


def assert_no_canary(text: str) -> None:
    assert "CANARY" not in text
    assert not [value for value in VALUES if value in text]


def test_all_attacks_run_and_a_report_holds_no_value(report: AuditReport) -> None:
    assert [result.attack for result in report] == list(ATTACKS)
    assert_no_canary(report.to_json())
    assert_no_canary(repr(report) + str(report.results) + report.to_frame().to_csv())
    assert json.loads(report.to_json())["verdict"] == report.verdict


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue"])
def test_other_guarantees_hold_no_value_either(guarantee: str) -> None:
    found = run_linkage_audit(setting(guarantee, holdout=HOLDOUT))
    assert_no_canary(found.to_json())
    assert found.verdict in ("pass", "review")
    if found.released:
        assert found.verdict == "pass"
        assert found["inversion_own"].figures["everyone_k_effective_min"] >= 4


def test_settings_show_and_give_away_nothing() -> None:
    one = setting(holdout=HOLDOUT, queries=TRAIN[rich(TRAIN)].head(5))
    run_linkage_audit(one, ["linkage", "inversion_released"])
    for thing in (one, one.crowd, one.releases, one.releases[0], one.places):
        assert_no_canary(f"{thing!r} {thing}")
    for thing in (one, one.crowd):
        with pytest.raises(InputError, match="refuses to be pickled") as caught:
            pickle.dumps(thing)
        assert_no_canary(str(caught.value))


def test_the_same_seed_gives_the_same_report(report: AuditReport) -> None:
    assert run_linkage_audit(setting(holdout=HOLDOUT)).to_json() == report.to_json()


def test_attacks_are_chosen_by_name_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    found = run_linkage_audit(setting(), ["uniqueness", "linkage"], progress=lambda *done: told.append(done))
    assert [result.attack for result in found] == ["uniqueness", "linkage"]
    assert told == [(0, 2), (1, 2), (2, 2)]
    with pytest.raises(InputError, match="unknown attack magic; known: linkage"):
        run_linkage_audit(setting(), ["magic"])
    with pytest.raises(KeyError):
        found["steering"]


def test_more_counterfactuals_than_the_limit_are_sampled() -> None:
    one = Setting(setting().anonymizer, TRAIN[rich(TRAIN)], seed=3, limit=4)
    again = Setting(setting().anonymizer, TRAIN[rich(TRAIN)], seed=3, limit=4)
    assert len(one.raw) == 4
    pd.testing.assert_frame_equal(one.raw, again.raw)
    assert run_linkage_audit(one, ["linkage"]).asked == 4


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing feature": ({"counterfactuals": TRAIN[QUASI]}, r"counterfactuals: missing columns \['pay', 'note'\]"),
    "holdout without one": ({"holdout": TRAIN[QUASI]}, "holdout: missing columns"),
    "no table": ({"counterfactuals": [1]}, "counterfactuals must be a pandas DataFrame, got list"),
    "queries of another length": ({"queries": TRAIN.head(2)}, "2 queries for 5 counterfactuals"),
    "negative seed": ({"seed": -1}, "seed must be a whole number of at least 0"),
    "limit of none": ({"limit": 0}, "limit must be a whole number of at least 1"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    good = {"anonymizer": setting().anonymizer, "counterfactuals": TRAIN.head(5)}
    with pytest.raises(InputError, match=message):
        Setting(**{**good, **changes})


def test_an_anonymizer_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        Setting(KAnonymizer(), TRAIN)


def test_nothing_released_is_review() -> None:
    one = Setting(setting("reciprocal").anonymizer, TRAIN[~rich(TRAIN)].head(3))
    found = run_linkage_audit(one)
    assert (found.asked, found.released, found.verdict) == (3, 0, "review")
    assert all(not result.worked for result in found)
    json.loads(found.to_json())


def test_a_promise_that_was_not_tested_is_review_and_a_broken_one_is_fail() -> None:
    assert run_linkage_audit(setting("reciprocal"), ["linkage"]).verdict == "review"
    one = setting("reciprocal")
    assert run_linkage_audit(one, ["linkage", "inversion_own"]).verdict == "pass"
    other = setting()  # regions made one by one, under a policy that promises a partition
    other.anonymizer.policy_ = one.anonymizer.policy_
    found = run_linkage_audit(other, ["linkage", "inversion_own"])
    assert found.verdict == "fail"
    assert [check.holds for check in found.checks] == [True, False, False]


def test_changed_policies_are_never_weaker() -> None:
    policy = PrivacyPolicy(k=10, objective="ncp")
    changed = [policy_of(policy, turn, 1000) for turn in range(1, 10)]
    assert all(p.k >= 10 for p in changed)
    assert len({(p.k, p.objective) for p in changed} | {(10, "ncp")}) == 10
    assert max(policy_of(policy, turn, 12).k for turn in range(1, 10)) == 12


def test_the_explainer_attacked_by_default_returns_the_nearest_row() -> None:
    one = setting()
    ask = nearest_row(one.anonymizer)
    wanted = TRAIN[rich(TRAIN)].reset_index(drop=True)
    answers = ask(wanted.head(3))
    assert [entry.released["pay"] for entry in answers.released] == wanted["pay"].head(3).tolist()
    assert steering(one, ask).main == steering(setting()).main


def test_opposite_goals_need_the_queries() -> None:
    policy = PrivacyPolicy(k=4, guarantee="nominal", objective="ncp")
    anonymizer = KAnonymizer(policy=policy).fit(Population.from_frame(TRAIN, SCHEMA), rich, "opposite")
    good, bad = TRAIN[rich(TRAIN)].head(4), TRAIN[~rich(TRAIN)].head(4)
    found = run_linkage_audit(Setting(anonymizer, good, bad, holdout=HOLDOUT))
    alone = run_linkage_audit(Setting(anonymizer, good))
    assert found["model_filter"].figures["k_consistent_min"] == alone["model_filter"].figures["k_consistent_min"]
    assert found.released == 4
    with pytest.raises(PolicyError, match="catalogue"):
        anonymizer.explain(bad)


def test_bins_withheld_and_missing_values_are_attacked_as_well() -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": np.where(random.random(80) < 0.2, np.nan, random.integers(20, 60, 80)),
            "town": random.choice(["A", "B", None], 80),  # type: ignore[arg-type]
            "pay": np.where(random.random(80) < 0.2, np.nan, random.integers(0, 100, 80)),
            "note": random.choice(["x", "y", "z", None], 80, p=[0.6, 0.3, 0.05, 0.05]),  # type: ignore[arg-type]
        }
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age", "town"], bins={"pay": [0, 50, 100]})
    policy = PrivacyPolicy(k=6, private_values="bins", rare_values="withhold")
    anonymizer = KAnonymizer(policy=policy).fit(
        Population.from_frame(frame, schema), lambda r: r["pay"].isna() < 2, True
    )
    found = run_linkage_audit(Setting(anonymizer, frame.head(20), holdout=frame.tail(20)))
    assert found.released == 20
    assert found.verdict == "pass"
    # Half a table shares a bin: private values alone name nobody.
    assert found["uniqueness"].figures["private_matches_min"] > 1
    assert found["linkage"].n == found["linkage"].main.n == 20


def test_a_report_is_logged_under_its_own_names(report: AuditReport, mlflow_store: str) -> None:
    import mlflow

    run_id = report.log(run_name="audit", tags={"stage": "test"})
    run = mlflow.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["audit/linkage/k_min"] == report["linkage"].figures["k_min"]
    assert run.data.metrics["audit/model_filter/main_high"] == report["model_filter"].main.high
    assert "audit/homogeneity/share/pay" in run.data.metrics
    assert run.data.params["audit.seed"] == "0"
    assert run.data.tags["cfk.audit.verdict"] == "pass"
    assert run.data.tags["stage"] == "test"
    path = Path(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="cfk/audit-linkage.json"))
    assert json.loads(path.read_text(encoding="utf-8")) == report.to_dict()
    assert_no_canary(f"{run.data}")


def test_a_report_goes_to_the_active_run_or_a_named_experiment(report: AuditReport, mlflow_store: str) -> None:
    import mlflow

    with mlflow.start_run() as active:
        assert report.log() == active.info.run_id
        assert mlflow.get_run(active.info.run_id).info.status == "RUNNING"
    other = mlflow.get_run(report.log(experiment="audits"))
    assert mlflow.get_experiment(other.info.experiment_id).name == "audits"
    assert report.log(other.info.run_id) == other.info.run_id


def test_a_server_that_is_down_is_said_at_once(report: AuditReport) -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        report.log(tracking_uri="http://127.0.0.1:9")


def test_a_store_that_refuses_is_one_error(report: AuditReport, mlflow_store: str) -> None:
    with pytest.raises(TrackingError, match="MLflow did not take the report"):
        report.log("no-such-run")


def test_column_names_become_names_that_mlflow_takes(mlflow_store: str) -> None:
    import mlflow

    frame = TRAIN.rename(columns={"pay": "pay (€/year)"})
    policy = PrivacyPolicy(k=4, guarantee="nominal", objective="ncp")
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=QUASI))
    anonymizer = KAnonymizer(policy=policy).fit(population, lambda rows: rows["age"] > 0, True)
    run_id = run_linkage_audit(Setting(anonymizer, frame.head(3)), ["homogeneity"]).log()
    assert "audit/homogeneity/share/pay __/year_" in mlflow.get_run(run_id).data.metrics
