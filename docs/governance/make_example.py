"""Make the example report from real data: real patients, explained, audited, logged, and reported
on.

``python docs/governance/make_example.py`` writes ``example-report.json``, and
``example-report.html`` from it. Runs have ids and times of their own, so a new example differs in
those; ``--render`` makes only the HTML again.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Attribute,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.audit import Setting, run_linkage_audit
from cfk_plugin.demo import LOW, load_patients
from cfk_plugin.tracking.logger import RunLogger

HERE = Path(__file__).parent
DATA, PAGE = HERE / "example-report.json", HERE / "example-report.html"
EXPERIMENT = "diabetes progression"
POLICY = PrivacyPolicy(k=12, min_pureness=0.5, max_ncp=0.5)
INPUTS = {
    "answers": {
        "system": "diabetes progression, random forest, release 1",
        "decision": "whether the disease of a patient progresses much within a year; it prepares a doctor's advice",
        "recipients": "the patients who ask",
        "recipients_pool": "unknown",
        "frequency": "as often as they like",
        "other_releases": "none",
        "purpose": "an example",
        "access": "everyone who reads this example, as the data are public",
        "thresholds_by": "the authors of the example; k = 12 follows from EMA policy 0070",
        "background_knowledge": "age, sex and BMI of every patient",
    },
    "thresholds": {"attribute_disclosure": 0.5},
}


def make() -> PrivacyReport:
    """Explain, audit, log and report."""
    patients = load_patients(100)
    rows = patients.train.drop(columns="progression")
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=["age", "sex", "bmi"],
        sensitive=["glucose"],
        columns={
            "sex": Attribute(categories=[1, 2]),
            "age": Attribute(bounds=(18, 100)),
            "bmi": Attribute(bounds=(10, 60)),
            "glucose": Attribute(bounds=(40, 300)),
        },
    )
    population = Population.from_frame(rows, schema, key=b"the key of the example")
    explainer = NearestUnlikeNeighbour(rows, patients.model, desired=LOW)
    settings = {"model": patients.model, "population": population, "policy": POLICY, "desired": LOW}
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/mlflow.db"
        logger = RunLogger(
            experiment=EXPERIMENT,
            tracking_uri=store,
            run_name="answers",
            model="models:/progression/1",
        )
        private = protect(explainer, **settings, groups="sex", sample_explainer=20)
        run_id = logger.log(private.explain(patients.queries))
        # every patient asks a second time
        private.explain(patients.queries).log(run_id=run_id, tracking_uri=store)
        raw = explainer.explain(patients.queries)
        anonymizer = KAnonymizer(policy=POLICY).fit(population, model=patients.model, desired=LOW)
        setting = Setting(anonymizer, raw, patients.queries, holdout=patients.queries)
        run_linkage_audit(setting, ["linkage", "model_filter"]).log(run_id, tracking_uri=store)
        return PrivacyReport.of_runs(run_id, inputs=INPUTS, tracking_uri=store)


def main(arguments: list[str]) -> None:
    """Write the example, or render it again."""
    if arguments != ["--render"]:
        warnings.simplefilter("ignore")
        DATA.write_text(make().to_json(), encoding="utf-8")
    PAGE.write_text(PrivacyReport.read(DATA).to_html(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
