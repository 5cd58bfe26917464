"""Names in MLflow: of metrics, parameters, tags and artifacts of a run of each kind.

Each function of `RUNS` logs a run of one kind and returns its id. `names_of` reads the names back.
Names that MLflow sets itself are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.entities import FileInfo

import reported
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    BudgetAccountant,
    DPPrototypes,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.audit import Setting, canary_audit, one_run_audit, run_linkage_audit
from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import extraction
from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.surrogate import (
    attribute_inference_through_surrogate,
    membership_through_surrogate,
)
from cfk_plugin.frontier import frontier
from cfk_plugin.records.logger import RunLogger
from copied_owners import RememberingOwner, noisy_people
from model_server import accepts, logged, patients, population
from parts import table_of

K = 5
TABLE = pd.DataFrame(
    {
        "age": [20 + i % 40 for i in range(160)],
        "sex": ["f", "m"] * 80,
        "job": [("clerk", "nurse", "smith")[i % 3] for i in range(160)],
        "pay": [20 + (7 * i) % 60 for i in range(160)],
    }
)
DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex"],
    "sensitive": ["job"],
    "bounds": {"age": (18, 70), "pay": (0, 100)},
    "categories": {"sex": ["f", "m"], "job": ["clerk", "nurse", "smith"]},
    "nullable": [],
    "whole": ["age", "pay"],
}


def earns_enough(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["pay"].astype(float) > 50)


PEOPLE = Population.from_frame(TABLE, Schema.from_frame(TABLE, **DECLARED), key=b"key")
WANTED = TABLE[earns_enough(TABLE)].head(6).reset_index(drop=True)
QUERIES = TABLE[~earns_enough(TABLE)].head(6).reset_index(drop=True)


def log_lookup() -> str:
    """Protect by look-up, with an explainer that is asked."""
    logger = RunLogger()
    private = protect(
        NearestUnlikeNeighbour(TABLE, earns_enough, True),
        model=earns_enough,
        population=PEOPLE,
        policy=PrivacyPolicy(k=K, guarantee="lookup"),
        desired=True,
    )
    logger.log(private.explain(QUERIES))
    return _run_of(logger)


def log_catalogue() -> str:
    """Protect with every option that adds a figure or a parameter to the run."""
    logger = RunLogger(model="models:/credit/3")
    with Ledger("ledger.db", create=True) as ledger:
        policy = PrivacyPolicy(k=K, l=2, t=0.9)
        anonymizer = KAnonymizer(policy=policy, ledger=ledger)
        anonymizer.fit(PEOPLE, model=earns_enough, desired=True)
        explanations = anonymizer.explain(QUERIES, features_to_vary=["age", "pay", "job"])
    logger.log(explanations.by_group("sex", QUERIES["sex"]))
    return _run_of(logger)


def log_prototypes() -> str:
    pytest.importorskip("opendp", reason="the extra [dp] is not installed")
    logger = RunLogger()
    accountant = BudgetAccountant(100.0, 0.0)
    prototypes = DPPrototypes(rows=200, epsilon=50.0, accountant=accountant)
    prototypes.fit(PEOPLE, earns_enough, True)
    logger.log(prototypes.explain(QUERIES))
    return _run_of(logger)


def log_frontier() -> str:
    costs = frontier(
        WANTED,
        population=PEOPLE,
        model=earns_enough,
        desired=True,
        policy=PrivacyPolicy(k=K),
        ks=[2, K],
        compare=True,
    )
    return costs.log()


def log_still_true() -> str:
    """Ask a model that grants less about answers."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(PEOPLE, earns_enough, True)
    answers = anonymizer.explain(QUERIES)
    return answers.still_true(lambda rows: rows["pay"].astype(float) > 60, QUERIES).log()


def log_linkage_audit() -> str:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K))
    anonymizer.fit(PEOPLE, model=earns_enough, desired=True)
    holdout = TABLE.assign(age=TABLE["age"] + 1).head(40)
    return run_linkage_audit(Setting(anonymizer, WANTED, QUERIES, holdout)).log()


def log_audits_of_models() -> str:
    owner = RememberingOwner()
    people = noisy_people(160)
    copied: dict[str, Any] = {"queries": 60, "layers": (8,)}
    reports = [
        membership(owner, people, n_shadows=3, attacked=20, epsilon=1.0),
        extraction(owner, people, queries=(30,), repeats=2, unknown=owner.architecture),
        attribute_inference(owner, people, quasi_identifiers=["kind"]),
        membership_through_surrogate(owner, people, **copied),
        attribute_inference_through_surrogate(owner, people, attribute="kind", **copied),
    ]
    run_id = reports[0].log()
    for report in reports[1:]:
        report.log(run_id)
    return run_id


def log_epsilon_audits() -> str:
    canaries = pd.DataFrame({"age": [99] * 40, "sex": "f", "job": "clerk", "pay": range(40)})

    def count(rows: pd.DataFrame, random_state: int) -> float:
        noise = np.random.default_rng(random_state).laplace()
        return float((rows["age"] == 99).sum() + noise)

    run_id = canary_audit(count, TABLE, canaries.head(1), claimed=1.0, runs=20).log()
    one_run = one_run_audit(
        lambda rows: rows, TABLE, canaries, claimed=1.0, score=lambda rows: canaries.index
    )
    one_run.log(run_id)
    return run_id


def log_report() -> str:
    """Log the report of two runs, which gets a run of its own."""
    report = PrivacyReport.of_runs([reported.run(), reported.run()])
    return report.log()


def log_external_report() -> str:
    runs = [reported.run(), reported.run()]
    return PrivacyReport.of_runs(runs, edition="external").log()


def log_evaluation() -> str:
    queries = patients().head(4)
    settings = {
        "population": population(),
        "model": accepts,
        "desired": 1,
        "policy": {"guarantee": "reciprocal", "k": K},
    }
    with mlflow.start_run() as run:
        mlflow.models.evaluate(
            lambda rows: patients().tail(len(rows)).reset_index(drop=True),
            queries,
            model_type="counterfactual",
            evaluators=["cfk"],
            evaluator_config={"cfk": settings},
        )
    return str(run.info.run_id)


RUNS: dict[str, Callable[[], str]] = {
    "run_of_lookup.txt": log_lookup,
    "run_of_catalogue.txt": log_catalogue,
    "run_of_prototypes.txt": log_prototypes,
    "run_of_frontier.txt": log_frontier,
    "run_of_still_true.txt": log_still_true,
    "run_of_audit_linkage.txt": log_linkage_audit,
    "run_of_audits_of_epsilon.txt": log_epsilon_audits,
    "run_of_report.txt": log_report,
    "run_of_external_report.txt": log_external_report,
}
SLOW_RUNS: dict[str, Callable[[], str]] = {
    "run_of_audits_of_models.txt": log_audits_of_models,
    "run_of_evaluation.txt": log_evaluation,
}


def _run_of(logger: RunLogger) -> str:
    assert logger.run_id is not None
    return logger.run_id


def names_of(run_id: str) -> list[str]:
    """Return one line for each name of a run, with what it is the name of."""
    data = mlflow.get_run(run_id).data
    lines = [f"metric {name}" for name in data.metrics]
    lines += [f"param {name}" for name in data.params]
    lines += [f"tag {name}" for name in data.tags if not name.startswith("mlflow.")]
    for file in _files_of(run_id, None):
        name = re.sub(r"part-\d+-\w+", "part-TIME-ID", file.path)
        lines.append(f"artifact {name}")
        if name.endswith(".jsonl.gz"):
            copy = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=file.path)
            lines += [f"column {name} {column}" for column in table_of(Path(copy))]
    return sorted(lines)


def _files_of(run_id: str, folder: str | None) -> Iterator[FileInfo]:
    for entry in mlflow.MlflowClient().list_artifacts(run_id, folder):
        if entry.is_dir:
            yield from _files_of(run_id, entry.path)
        else:
            yield entry


def names_of_a_logged_model() -> list[str]:
    """Return the names of what `log_protected_model` says of a model, and of the model's files."""
    with mlflow.start_run():
        uri = logged(K).model_uri
    info = mlflow.models.get_model_info(uri)
    files = mlflow.artifacts.list_artifacts(artifact_uri=uri)
    lines = [f"metadata {name}" for name in info.metadata]
    return sorted(lines + [f"file {file.path.rpartition('/')[2]}" for file in files])
