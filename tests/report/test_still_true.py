"""A report shows the newest count of the answers that a later model accepts, and judges it."""

from __future__ import annotations

from typing import Any

import mlflow
import pytest

import reported
from cfk_plugin import PrivacyPolicy, PrivacyReport
from cfk_plugin.metrics.intervals import wilson
from cfk_plugin.release.still_true import StillTrue

pytestmark = pytest.mark.usefixtures("store")


def count(broken: int, policy: PrivacyPolicy = reported.POLICY) -> StillTrue:
    return StillTrue(
        answers=100,
        broken=tuple(range(broken)),
        queries=tuple(range(broken)),
        policy=policy.to_dict(),
    )


def report(*run_ids: str, inputs: Any = None) -> PrivacyReport:
    return PrivacyReport.of_runs(list(run_ids), inputs=inputs)


def checked(made: PrivacyReport) -> dict[str, Any]:
    return {check.id: check for check in made.data.checks}


def test_the_count_is_logged_beside_the_explanations_or_alone() -> None:
    run_id = reported.run()
    assert count(8).log(run_id) == run_id
    own = count(9).log(experiment="tests")
    found = {each: mlflow.MlflowClient().get_run(each).data.metrics for each in (run_id, own)}
    assert (found[run_id]["cfk.still_true"], found[run_id]["cfk.still_true_of"]) == (0.92, 100)
    assert found[own]["cfk.still_true"] == 0.91
    for run_ids, share in (((run_id,), 0.92), ((run_id, own), 0.91)):
        shown = report(*run_ids).data.metric("still_true")
        assert (shown.value, shown.n) == (share, 100)
        assert (shown.low, shown.high) == pytest.approx(wilson(round(100 * share), 100))


def test_the_report_of_an_experiment_finds_a_run_with_nothing_but_the_count() -> None:
    reported.run()
    count(3).log(experiment="tests")
    assert PrivacyReport.of_experiment("tests").data.metric("still_true").value == 0.97


@pytest.mark.parametrize(
    ("broken", "limit", "status"),
    [(10, None, "pass"), (11, None, "fail"), (11, 0.85, "pass"), (10, 0.95, "fail")],
)
def test_it_is_judged_by_the_limit_that_people_set(
    broken: int, limit: float | None, status: str
) -> None:
    run_id = reported.run()
    count(broken).log(run_id)
    thresholds = {} if limit is None else {"still_true": limit}
    inputs = reported.inputs(thresholds)
    check = checked(report(run_id, inputs=inputs))["still_true"]
    assert check.status == status
    assert check.threshold.value == (limit or 0.9)


def test_where_no_model_was_asked_only_people_who_set_a_limit_miss_it() -> None:
    run_id = reported.run()
    assert "still_true" not in checked(report(run_id))
    inputs = reported.inputs({"still_true": 0.8})
    assert checked(report(run_id, inputs=inputs))["still_true"].status == "not_measured"


def test_a_count_of_another_policy_says_nothing_of_this_release() -> None:
    run_id = reported.run()
    other = count(50, PrivacyPolicy(k=3)).log(experiment="tests")
    assert "still_true" not in checked(report(run_id, other))
