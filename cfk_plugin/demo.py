"""The command `cfk demo`: an explainer of real patients without and with protection, a logged run
and a report.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.table import Table

from cfk_plugin._protect import protect
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.tracking.run import check_store

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.hookspecs import Progress
    from cfk_plugin.release.explanations import Explanations

    Bar = Callable[[str, Console], AbstractContextManager[Progress]]


LOW, HIGH = 0, 1
"""The outcomes: disease progression after a year below and above the median."""
PUBLIC = ["age", "sex", "bmi"]
"""The quasi-identifiers: columns that others know of a patient."""

TITLES: Mapping[str, str] = {
    "bmi": "a BMI",
    "bp": "a blood pressure",
    "chol": "cholesterol",
    "ldl": "LDL cholesterol",
    "hdl": "HDL cholesterol",
    "tc_hdl": "a cholesterol ratio",
    "log_tg": "a logarithm of triglycerides",
    "glucose": "glucose",
}
UNITS: Mapping[str, str] = {
    "bp": "mmHg",
    "chol": "mg/dl",
    "ldl": "mg/dl",
    "hdl": "mg/dl",
    "glucose": "mg/dl",
}
OUTCOMES: Mapping[int, str] = {
    0: "the model would predict a slow progression",
    1: "the model would predict a fast progression",
}
_NAMES = {"s1": "chol", "s2": "ldl", "s3": "hdl", "s4": "tc_hdl", "s5": "log_tg", "s6": "glucose"}
_SHOWN = 2  # patients whose explanations are printed

EXPERIMENT = "cfk demo"
REPORT = "report.html"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Patients:
    """The data of the demo: training rows with the label, the model, and the queries."""

    train: pd.DataFrame
    model: Any
    queries: pd.DataFrame


def load_patients(patients: int) -> Patients:
    """Load scikit-learn's diabetes patients in their original units, and train a random forest on
    three quarters of them. At most `patients` of the others are the queries.
    """
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=_NAMES)
    table = table.astype({"age": int, "sex": int})
    table["progression"] = (table.pop("target") > 140.5).astype(int)  # the median
    train, test = train_test_split(
        table, test_size=0.25, random_state=0, stratify=table["progression"]
    )
    model = RandomForestClassifier(n_estimators=100, min_samples_leaf=3, random_state=0)
    model.fit(train.drop(columns="progression"), train["progression"])
    X = test.drop(columns="progression")
    queries = X[model.predict(X) == HIGH].head(patients).reset_index(drop=True)
    return Patients(train.reset_index(drop=True), model, queries)


def run(*, k: int, patients: int, folder: Path, console: Console, progress: Bar) -> int:
    """Run the demo, write its files to a folder, and return the exit code.

    The code is 1 if a training row was released. `progress` draws a bar while patients are
    explained.
    """
    policy = PrivacyPolicy(k=k)
    store = f"sqlite:///{folder / 'mlflow.db'}"
    check_store(store)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        data = load_patients(patients)
        features = data.train.drop(columns="progression")
        schema = Schema.from_frame(
            features,
            quasi_identifiers=PUBLIC,
            nominal=["sex"],
            immutable=["age", "sex"],
            titles=TITLES,
            units=UNITS,
            outcomes=OUTCOMES,
        )
        population = Population.from_frame(features, schema)
    introduce(data, population, k, console)
    with quiet():
        name, explainer, options = _explainer(data)
        raw = _raw_counterfactuals(explainer, data.queries.head(_SHOWN), options)
        private = protect(
            explainer,
            model=data.model,
            population=population,
            policy=policy,
            desired=LOW,
            sample_explainer=20,
        )
        with progress(f"explaining with {name}", console) as report_progress:
            explanations = private.explain(data.queries, progress=report_progress, **options)
    show(name, raw, explanations, data.queries, console)
    summarize(raw, features, explanations, console)
    with quiet():
        run_id, verdict = log(explanations, store, folder)
    console.print(
        f"\nLogged to MLflow as run {run_id}. The report's verdict is [bold]{verdict}[/]: a person"
        " must answer some of its checks.\n"
        f"Open {folder / REPORT} in a browser, or run mlflow ui --backend-store-uri {store}",
        soft_wrap=True,
    )
    return 1 if explanations.summary()["released_native"] else 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars and notices of other libraries."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _explainer(data: Patients) -> tuple[str, Any, dict[str, Any]]:
    """Return name, explainer and options: DiCE if it is installed, or the nearest unlike neighbour.

    The neighbour has no options.
    """
    if find_spec("dice_ml") is None:
        # Imported by name, as a user's script would: no module of the package imports an adapter.
        adapter = import_module("cfk_adapters.nearest")
        features = data.train.drop(columns="progression")
        explainer = adapter.NearestUnlikeNeighbour(features, data.model, desired=LOW)
        return "nearest unlike neighbour", explainer, {}
    import dice_ml

    table = dice_ml.Data(
        dataframe=data.train,
        continuous_features=[column for column in data.queries if column != "sex"],
        outcome_name="progression",
    )
    model = dice_ml.Model(model=data.model, backend="sklearn")
    options = {"total_CFs": 1, "desired_class": LOW}
    return "DiCE", dice_ml.Dice(table, model, method="kdtree"), options


def _raw_counterfactuals(
    explainer: Any, queries: pd.DataFrame, options: Mapping[str, Any]
) -> pd.DataFrame:
    """Return one unprotected counterfactual for each query, with the index of the queries."""
    if not options:
        table: pd.DataFrame = explainer.explain(queries)
        return table
    answers = explainer.generate_counterfactuals(queries, **options).cf_examples_list
    first_rows = [answer.final_cfs_df.head(1) for answer in answers]
    rows: pd.DataFrame = pd.concat(first_rows, ignore_index=True)[list(queries.columns)]
    return rows


def introduce(data: Patients, population: Population, k: int, console: Console) -> None:
    """Print a description of the data, and how many patients are unique in it."""
    risk = population.risk_profile(k)
    console.print(
        f"{len(data.train)} diabetes patients (scikit-learn's, real and public), and a random"
        " forest that predicts whether the disease progresses fast. Other people may know the age,"
        f" sex and BMI.\n{risk.unique:.0%} of the patients are the only one with their age, sex and"
        f" BMI; {risk.below_k:.0%} share these with fewer than {k - 1} others."
        f"\n{len(data.queries)} other patients ask what would have to be different for a slow"
        " progression.\n"
    )


def show(
    name: str,
    raw: pd.DataFrame,
    explanations: Explanations,
    queries: pd.DataFrame,
    console: Console,
) -> None:
    """Print the first released explanations next to the raw counterfactuals."""
    console.rule(f"[bold]{name}: before and after")
    columns = list(map(str, queries.columns))
    table = Table("", *columns, box=None, pad_edge=False, header_style="bold")
    sentences = []
    for entry in explanations.generalized:
        if entry.query not in raw.index:
            continue
        factual = queries.loc[entry.query]
        table.add_row(f"patient {entry.query}", *map(_cell, factual), style="dim")
        table.add_row("  before", *map(_cell, raw.loc[entry.query]), style="red")
        cells = entry.cells()
        table.add_row("  after", *(cells[column] for column in columns), style="green")
        sentence = entry.text({str(column): value for column, value in factual.items()})
        people = f"At least {entry.certificate.k} people match this."
        sentences.append(f"Patient {entry.query}: {sentence} {people}")
    console.print(table)
    console.print(
        "Before: without protection. These values are shown only because this data is public.\n",
        style="dim",
    )
    for sentence in sentences:
        console.print(sentence, markup=False)


def summarize(
    raw: pd.DataFrame, train: pd.DataFrame, explanations: Explanations, console: Console
) -> None:
    """Print how many raw counterfactuals are training rows, and the figures of the explanations."""
    numbers = train.astype(float)
    distances = [(numbers - row).abs().max(axis=1).min() for _, row in raw.astype(float).iterrows()]
    n_copies = sum(distance < 0.001 for distance in distances)
    figures = explanations.summary()
    console.print(
        f"\n{n_copies} of the {len(raw)} counterfactuals without protection are a training patient,"
        " with all private values. With protection, at least"
        f" {figures['k_min']:.0f} people match each of the {figures['released']} explanations for"
        f" {figures['asked']} patients."
    )


def log(explanations: Explanations, store: str, folder: Path) -> tuple[str, str]:
    """Log explanations to a store and write the report; return the run id and the verdict."""
    import mlflow

    from cfk_plugin.report.privacy_report import PrivacyReport

    client = mlflow.MlflowClient(tracking_uri=store)
    if client.get_experiment_by_name(EXPERIMENT) is None:
        artifacts = (folder.resolve() / "mlruns").as_uri()
        client.create_experiment(EXPERIMENT, artifact_location=artifacts)
    run_id = explanations.log(experiment=EXPERIMENT, tracking_uri=store, run_name="demo")
    report = PrivacyReport.of_runs([run_id], tracking_uri=store)
    report.save(folder / REPORT)
    return run_id, report.verdict


def _cell(value: Any) -> str:
    return f"{float(value):.4g}"
