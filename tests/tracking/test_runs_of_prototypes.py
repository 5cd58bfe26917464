"""Runs of prototypes: what is guaranteed, what was spent, and nothing that was computed from the
exact table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from cfk_plugin import Withheld
from cfk_plugin.errors import UntrackedWarning
from cfk_plugin.tracking.logger import RunLogger, observe
from parts import content_of, figures_of, rows_of
from prototyped import FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from tracked import explanations, journaled


def data_of(run_id: str | None) -> Any:
    return mlflow.get_run(str(run_id)).data


def test_run_has_budget_of_prototypes(mlflow_store: str) -> None:
    """Parameters, metrics and tags of regions that prototypes lack are left out."""
    run_id = prototypes(plugins="dp 0.1.0").log()
    data = data_of(run_id)
    assert data.params == {
        "cfk.guarantee": "dp-pure",
        "cfk.method": "dp",
        "cfk.generator": "dp",
        "cfk.epsilon": "1.0",
        "cfk.delta": "0.0",
    }
    assert data.metrics == {
        "cfk.asked": 3,
        "cfk.released": 2,
        "cfk.withheld_rate": pytest.approx(1 / 3),
        "cfk.untracked": 0,
        "cfk.epsilon_spent": 1.0,
    }
    tags = {
        "cfk.policy_sha256": policy().sha256,
        "cfk.verdict": "pass",
        "cfk.dp.guarantee": "pure",
        "cfk.dp.model_access": "public",
        "cfk.dp.covers": certificate().covers,
        "cfk.dp.fit": "9f2c9f2c9f2c9f2c",
    }
    assert tags.items() <= data.tags.items()
    loose = certificate(guarantee="approximate", delta=1e-6)
    params = data_of(prototypes(prototype(0, of=loose), under=policy(delta=1e-6)).log()).params
    assert (params["cfk.guarantee"], params["cfk.delta"]) == ("dp-approximate", "1e-06")


@pytest.mark.parametrize("seeded", [False, True])
def test_claim_asks_for_review(seeded: bool, mlflow_store: str) -> None:
    """Nothing is proven of seeded noise, or of a mechanism of someone else."""
    claimed = prototypes(prototype(0, of=certificate(guarantee="none", seeded=True)))
    logger = RunLogger()
    run_id = logger.log(claimed if seeded else unproven())
    data = data_of(run_id)
    assert data.tags["cfk.verdict"] == "review"
    assert data.tags["cfk.dp.guarantee"] == "no guarantee; see audit"
    assert data.params["cfk.guarantee"] == "none"
    figures = figures_of(run_id)
    assert (figures["unproven"], figures["epsilon_spent"]) == (1, None)


def test_fingerprint_of_population_is_not_logged(mlflow_store: str, tmp_path: Path) -> None:
    """It depends on the exact table, which no epsilon covers."""
    logger = RunLogger()
    observe(prototypes(), logger)
    assert figures_of(logger.run_id)["prototypes"] == 2
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert contents
    assert not [content for content in contents if FINGERPRINT.encode() in content]


def test_rows_have_no_value_of_prototypes(mlflow_store: str) -> None:
    """A prototype is near to the person who asked."""
    run_id = prototypes().by_group("sex", ["f", "m", "f"]).log()
    rows = rows_of(run_id)
    assert json.loads(rows["prototype"][0]) == {}
    assert json.loads(rows["certificate"][0]) == certificate().to_dict()
    assert rows["feature.city"].isna().all()
    assert rows["epsilon"].tolist()[::2] == [1.0, 1.0]
    assert rows["group"].tolist() == ["f", "m", "f"]
    counts = ["k", "ncp", "pureness", "region", "released", "population", "k_desired", "finding"]
    assert rows[counts].isna().all(axis=None)
    assert content_of(run_id)["policy.json"] == policy().to_dict()


def test_run_has_the_latest_budget(mlflow_store: str) -> None:
    """What was spent is that of the latest result; counts are sums."""
    logger = RunLogger()
    logger.log(prototypes())
    run_id = logger.log(prototypes(prototype(0), epsilon_spent="2.5"))
    figures = figures_of(run_id)
    assert (figures["asked"], figures["prototypes"], figures["epsilon_spent"]) == (4, 3, 2.5)


@pytest.mark.parametrize(
    ("first", "other"), [(explanations, prototypes), (prototypes, explanations)]
)
def test_prototypes_share_no_run_with_regions(first: Any, other: Any, mlflow_store: str) -> None:
    """The other kind goes to a child."""
    run_id = first().log()
    child = other().log(run_id=run_id)
    assert data_of(child).tags["mlflow.parentRunId"] == run_id


def test_nothing_released_asks_for_review(mlflow_store: str) -> None:
    """No certificate tells a guarantee."""
    data = data_of(prototypes(Withheld(0, "none_found")).log())
    assert data.tags["cfk.verdict"] == "review"
    assert "cfk.guarantee" not in data.params


def test_record_is_same_in_a_journal(tmp_path: Path) -> None:
    """A store that does not answer changes nothing."""
    journal = tmp_path / "journal.jsonl"
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", journal=journal)
    with pytest.warns(UntrackedWarning):
        logger.submit(prototypes())
    (record,) = journaled(journal)
    assert record.of_prototypes
    assert [row["epsilon"] for row in record.released] == [1.0, 1.0]
