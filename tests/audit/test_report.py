"""What a report of attacks says, where it goes, and that no value of a row goes with it."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.audit import (
    ATTACKS,
    AuditReport,
    AuditResult,
    Rate,
    Setting,
    rate,
    run_linkage_audit,
    to_frame,
)
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.metrics import clopper_pearson

N = 90
QUASI = ["age", "town", "seen"]


def table() -> pd.DataFrame:
    """Return rows in which no value occurs twice, and none by chance anywhere else."""
    random = np.random.default_rng(12)
    order = [random.permutation(N) for _ in range(4)]
    return pd.DataFrame(
        {
            "age": 730_000_019 + 7_919 * order[0],
            "town": [f"CANARY-TOWN-{i:03d}-{secrets.token_hex(4)}" for i in order[1]],
            "seen": pd.Timestamp("2011-07-03 05:17:43.918273")
            + pd.to_timedelta(order[2] * 1_234_567_891, unit="us"),
            "pay": 860_000_011 + 104_729 * order[3],
            "note": [f"CANARY-NOTE-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
        }
    )


TABLE = table()
CUT = int(TABLE["pay"].median()) - 17
TRAIN, HOLDOUT = TABLE.head(60).reset_index(drop=True), TABLE.tail(30).reset_index(drop=True)
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=QUASI)
VALUES = {value for name in TABLE for value in TABLE[name].astype(str)} | {
    time.isoformat() for time in TABLE["seen"]
}


def rich(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > CUT).to_numpy()


def setting(
    guarantee: str = "lookup", counterfactuals: pd.DataFrame | None = None, **options: Any
) -> Setting:
    policy = PrivacyPolicy(
        k=4,
        guarantee=guarantee,  # type: ignore[arg-type]
        objective="ncp",
    )
    anonymizer = KAnonymizer(policy=policy, random_state=2).fit(
        Population.from_frame(TRAIN, SCHEMA), rich, True
    )
    return Setting(
        anonymizer,
        TRAIN[rich(TRAIN)].head(5) if counterfactuals is None else counterfactuals,
        **options,
    )


@pytest.fixture(scope="module")
def report() -> AuditReport:
    return run_linkage_audit(setting(holdout=HOLDOUT))


def assert_no_canary(text: str) -> None:
    assert "CANARY" not in text
    assert not [value for value in VALUES if value in text]


# --- rates and results ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([1, 1, 0, 1], clopper_pearson(3, 4)),
        ([0.1] * 20, clopper_pearson(2, 20)),  # equal probabilities have no width of zero
        # rounded outwards
        ([0.11] * 20, (clopper_pearson(2, 20).low, clopper_pearson(3, 20).high)),
        ([], (0.0, 1.0)),
    ],
)
def test_a_rate_of_right_guesses_or_equal_chances_has_the_exact_interval(
    values: list[float], ends: Any
) -> None:
    found = rate(values)
    assert (found.n, (found.low, found.high)) == (len(values), tuple(ends))
    assert found.value == pytest.approx(np.mean(values) if values else math.nan, nan_ok=True)


def test_a_rate_of_other_chances_is_a_seeded_bootstrap() -> None:
    found = rate([0.1, 0.2, 0.5, 1.0, 0.1, 0.3], seed=1)
    assert found == rate([0.1, 0.2, 0.5, 1.0, 0.1, 0.3], seed=1)
    assert found.low < found.value < found.high


def result(
    main: Rate, baseline: Rate, control: Rate | None = None, **figures: float
) -> AuditResult:
    return AuditResult("guessing", "Guesses.", main, baseline, control, figures, seed=3, n=main.n)


def test_a_result_says_when_the_attack_did_not_work_cannot_be_changed_and_travels() -> None:
    weak, strong = (
        result(rate([chance] * 50), rate([0.1] * 50), k=3.0, unknown=math.nan)
        for chance in (0.1, 1.0)
    )
    assert (weak.worked, strong.worked, strong.warning) == (False, True, None)
    assert "no evidence of protection" in str(weak.warning)
    assert not result(rate([]), rate([])).worked
    with pytest.raises(dataclasses.FrozenInstanceError):
        weak.n = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        weak.figures["k"] = 4.0  # type: ignore[index]
    assert json.loads(json.dumps(weak.to_dict(), allow_nan=False))["figures"] == {
        "k": 3.0,
        "unknown": None,
    }
    frame = to_frame([weak, result(rate([1.0]), rate([0.0]), rate([0.5, 0.2]))])
    assert frame["figures.k"].tolist()[0] == 3.0
    assert frame["control"].isna().tolist() == [True, False]
    assert {"main", "main_low", "main_high", "baseline", "worked", "n"} <= set(frame)


# --- a report of attacks on regions ---------------------------------------------------------------


def test_all_attacks_run_hold_no_value_and_are_the_same_with_the_same_seed(
    report: AuditReport,
) -> None:
    assert [result.attack for result in report] == list(ATTACKS)
    assert_no_canary(
        report.to_json() + repr(report) + str(report.results) + report.to_frame().to_csv()
    )
    assert json.loads(report.to_json())["verdict"] == report.verdict
    assert run_linkage_audit(setting(holdout=HOLDOUT)).to_json() == report.to_json()


def test_a_lookup_promises_those_inside_alone() -> None:
    found = run_linkage_audit(setting("lookup", holdout=HOLDOUT))
    assert_no_canary(found.to_json())
    assert (found.verdict, found.released) in (("pass", 5), ("review", 0))
    assert [check.name for check in found.checks] == ["linkage/k_min"]


def test_a_setting_shows_nothing_and_refuses_to_be_pickled() -> None:
    one = setting(holdout=HOLDOUT, queries=TRAIN[rich(TRAIN)].head(5))
    run_linkage_audit(one, ["linkage", "model_filter"])
    assert_no_canary(f"{one!r} {one} {one.explanations!r}")
    with pytest.raises(InputError, match="refuses to be pickled") as caught:
        pickle.dumps(one)
    assert_no_canary(str(caught.value))


def test_a_notebook_shows_the_verdict_first_and_every_attack() -> None:
    found = run_linkage_audit(setting("lookup"), ["linkage", "model_filter"])
    html = found._repr_html_()
    assert html.index(f"<b>Audit: {found.verdict}, k = ") < html.index("<table>")
    for check in found.checks:
        assert f"{check.value:g} people, promised at least {check.needed}" in html
    for result in found:
        star = "" if result.worked else " *"
        assert f"<td>{result.attack}{star}</td>" in html
    assert_no_canary(html)
    nothing = run_linkage_audit(setting("lookup", TRAIN[~rich(TRAIN)].head(3)), ["linkage"])
    assert "not tested" in nothing._repr_html_()
    assert "nothing to attack" in nothing._repr_html_()
    assert "nan" not in nothing._repr_html_()
    report = AttackReport(kind="membership", subject="<b>", results=nothing.results, settings={})
    assert "Audit of &lt;b&gt;: membership" in report._repr_html_()


def test_attacks_are_chosen_by_name_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    found = run_linkage_audit(
        setting(), ["uniqueness", "linkage"], progress=lambda *done: told.append(done)
    )
    assert [result.attack for result in found] == ["uniqueness", "linkage"]
    assert told == [(0, 2), (1, 2), (2, 2)]
    with pytest.raises(InputError, match="unknown attack magic; known: linkage"):
        run_linkage_audit(setting(), ["magic"])
    with pytest.raises(KeyError):
        found["model_filter"]


def test_more_counterfactuals_than_the_limit_are_sampled_by_seed() -> None:
    one, again = (setting(counterfactuals=TRAIN[rich(TRAIN)], seed=3, limit=4) for _ in range(2))
    pd.testing.assert_frame_equal(one.raw, again.raw)
    assert run_linkage_audit(one, ["linkage"]).asked == len(one.raw) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counterfactuals": TRAIN[QUASI]}, r"counterfactuals: missing columns \['pay', 'note'\]"),
        ({"holdout": TRAIN[QUASI]}, "holdout: missing columns"),
        ({"counterfactuals": [1]}, "counterfactuals must be a table .*, got list"),
        ({"queries": TRAIN.head(2)}, "2 queries for 5 counterfactuals"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"limit": 0}, "limit must be a whole number >= 1"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        setting(**{"counterfactuals": TRAIN.head(5), **changes})
    with pytest.raises(NotFittedError):
        Setting(KAnonymizer(), TRAIN)


def test_nothing_released_or_not_tested_is_review_and_a_broken_promise_is_fail() -> None:
    nothing = run_linkage_audit(setting("lookup", TRAIN[~rich(TRAIN)].head(3)))
    assert (nothing.asked, nothing.released, nothing.verdict) == (3, 0, "review")
    assert not any(result.worked for result in nothing)
    json.loads(nothing.to_json())
    lookup = setting()
    assert run_linkage_audit(lookup, ["uniqueness"]).verdict == "review"
    assert run_linkage_audit(lookup, ["linkage"]).verdict == "pass"
    # regions of 4 people, under a policy that promises 60
    lookup.anonymizer.policy_ = replace(lookup.anonymizer.policy_, k=60)
    found = run_linkage_audit(lookup, ["linkage"])
    assert found.verdict == "fail"
    assert [check.holds for check in found.checks] == [False]


# --- MLflow ---------------------------------------------------------------------------------------


def test_a_report_is_logged_under_its_own_names(report: AuditReport, mlflow_store: str) -> None:
    import mlflow

    run_id = report.log(run_name="audit", tags={"stage": "test"})
    run = mlflow.get_run(run_id)
    assert run.data.metrics["audit/linkage/k_min"] == report["linkage"].figures["k_min"]
    assert run.data.metrics["audit/model_filter/main"] == report["model_filter"].main.value
    promised = ("k_min", "k_consistent_min")
    assert {name.rpartition("/")[2] for name in run.data.metrics} <= {
        "main",
        "baseline",
        "control",
        *promised,
    }
    assert run.data.params["audit.seed"] == "0"
    assert (run.info.status, run.data.tags["cfk.audit.verdict"], run.data.tags["stage"]) == (
        "FINISHED",
        "pass",
        "test",
    )
    path = Path(
        mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="cfk/audit-linkage.json")
    )
    assert json.loads(path.read_text(encoding="utf-8")) == report.to_dict()
    assert_no_canary(f"{run.data}")
    with mlflow.start_run() as active:
        assert report.log() == active.info.run_id
        assert mlflow.get_run(active.info.run_id).info.status == "RUNNING"
    other = mlflow.get_run(report.log(experiment="audits"))
    assert mlflow.get_experiment(other.info.experiment_id).name == "audits"
    assert report.log(other.info.run_id) == other.info.run_id


def test_a_store_that_is_down_or_refuses_is_one_error(
    report: AuditReport, mlflow_store: str
) -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        report.log(tracking_uri="http://127.0.0.1:9")
    with pytest.raises(TrackingError, match="MLflow did not accept the report"):
        report.log("no-such-run")
