"""The demo's runs, and the report that is made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfk_plugin.demo.acts import Act
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.report.inputs import HumanInputs
from cfk_plugin.report.privacy_report import PrivacyReport

EXPERIMENT = "cfk demo"
REPORT = "report.html"

_INPUTS = HumanInputs(
    answers={
        "system": "the demo of cfk_plugin",
        "decision": "whether the disease of a diabetes patient progresses much within a year",
        "recipients": "whoever runs the demo",
        "recipients_pool": "yes",
        "purpose": "demonstration",
        "background_knowledge": "age, sex and BMI of every patient; the data are public",
    },
    accepted_risks={"k_desired_min": "a demonstration on public data"},
    reason="demonstration",
)
"""What is true of the demo; everything else is left open, as it would be for a newcomer."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What was logged: runs by the name of the explainer, and the report that was made from them."""

    runs: Mapping[str, str]
    report: PrivacyReport


def log(acts: Sequence[Act], folder: Path) -> Logged:
    """Log every explainer's result to an SQLite store in the folder, and make the report of these runs."""
    import mlflow

    uri = store(folder)
    client = mlflow.MlflowClient(tracking_uri=uri)
    if client.get_experiment_by_name(EXPERIMENT) is None:
        client.create_experiment(EXPERIMENT, artifact_location=(folder.resolve() / "mlruns").as_uri())
    runs = {
        act.name: act.explanations.log(RunLogger(experiment=EXPERIMENT, tracking_uri=uri, run_name=act.name))
        for act in acts
    }
    report = PrivacyReport.of_runs(list(runs.values()), inputs=_INPUTS, tracking_uri=uri)
    report.save(folder / REPORT)
    return Logged(runs, report)


def store(folder: Path) -> str:
    """Return the address of the MLflow store in a folder."""
    return f"sqlite:///{folder / 'mlflow.db'}"
