"""What `cfk demo` tells: real patients, explanations before and after, and where to look at
them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.table import Table

from cfk_plugin._protect import protect
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import install_line
from cfk_plugin.records.stores import check_store

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.hookspecs import Progress
    from cfk_plugin.release.explanations import Explanations
    from cfk_plugin.report.privacy_report import PrivacyReport

    Bar = Callable[[str, Console], AbstractContextManager[Progress]]


LOW, HIGH = 0, 1
"""Outcomes: disease progression after a year below and above the median."""
KNOWN = ["age", "sex", "bmi"]
"""What is publicly known of a patient."""

_NAMES = {"s1": "chol", "s2": "ldl", "s3": "hdl", "s4": "tc_hdl", "s5": "log_tg", "s6": "glucose"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Patients:
    """The data of the demo: training rows with the label, model, and the patients to explain."""

    train: pd.DataFrame
    model: Any
    accuracy: float
    queries: pd.DataFrame


def load_patients(patients: int) -> Patients:
    """Load scikit-learn's diabetes patients in their own units, and train a random forest on three
    quarters.
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
    high = X[model.predict(X) == HIGH].head(patients).reset_index(drop=True)
    accuracy = float(model.score(X, test["progression"]))
    return Patients(train.reset_index(drop=True), model, accuracy, high)


_RAW = 4  # patients for whom the raw counterfactuals are asked


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Act:
    """One explainer, before and after: some raw counterfactuals (of public data), and what was
    released.
    """

    name: str
    raw: pd.DataFrame
    explanations: Explanations


def explainers(console: Console) -> dict[str, Callable[..., Act]]:
    """Return what plays each act, by the explainer's name; DiCE is left out where it is not
    installed.
    """
    found: dict[str, Callable[..., Act]] = {}
    with quiet():
        try:
            import_module("dice_ml")
        except ImportError:
            console.print(
                f"dice-ml is not installed, so DiCE is left out; {install_line('dice')} brings"
                " it.\n",
                markup=False,  # Rich would take the name of the extra for a style
            )
        else:
            found["DiCE (kd-tree)"] = _with_dice
    return {**found, "nearest unlike neighbour": _with_nearest}


def _with_nearest(
    name: str,
    data: Patients,
    population: Population,
    policy: PrivacyPolicy,
    told: Callable[[int, int], None],
) -> Act:
    # Adapters are plugins: the product imports none, so the demo asks for one by name, as a user's
    # script would.
    adapter = import_module("cfk_adapters.nearest")
    features = data.train.drop(columns="progression")
    explainer = adapter.NearestUnlikeNeighbour(features, data.model, desired=LOW)
    raw = explainer.explain(data.queries.head(_RAW))
    private = protect(
        explainer,
        model=data.model,
        population=population,
        policy=policy,
        desired=LOW,
        plugins=[adapter],
    )
    explanations = private.explain(data.queries, progress=told)
    return Act(name, raw, explanations)


def _with_dice(
    name: str,
    data: Patients,
    population: Population,
    policy: PrivacyPolicy,
    told: Callable[[int, int], None],
) -> Act:
    import dice_ml

    continuous = [column for column in data.queries if column != "sex"]
    table = dice_ml.Data(
        dataframe=data.train, continuous_features=continuous, outcome_name="progression"
    )
    explainer = dice_ml.Dice(
        table, dice_ml.Model(model=data.model, backend="sklearn"), method="kdtree"
    )
    options = {"total_CFs": 1, "desired_class": LOW}
    answers = explainer.generate_counterfactuals(
        data.queries.head(_RAW), **options
    ).cf_examples_list
    shown = [
        a.final_cfs_df if a.final_cfs_df_sparse is None else a.final_cfs_df_sparse for a in answers
    ]
    raw = pd.DataFrame(
        {i: table.iloc[0] for i, table in enumerate(shown) if table is not None and len(table)}
    ).T
    adapter = import_module("cfk_adapters.dice")
    private = protect(
        explainer,
        model=data.model,
        population=population,
        policy=policy,
        desired=LOW,
        plugins=[adapter],
    )
    explanations = private.explain(data.queries, progress=told, **options)
    return Act(name, raw, explanations)


@contextlib.contextmanager
def quiet() -> Any:
    """Keep progress bars and notices of other libraries out of the story."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


EXPERIMENT = "cfk demo"
REPORT = "report.html"


def log(acts: Sequence[Act], folder: Path) -> tuple[dict[str, str], PrivacyReport]:
    """Log every explainer's result to an SQLite store in the folder; return the runs by name, and
    their report.
    """
    import mlflow

    from cfk_plugin.report.privacy_report import PrivacyReport

    # What is true of the demo; everything else is left open, as it would be for a newcomer.
    inputs = {
        "answers": {
            "system": "the demo of cfk_plugin",
            "decision": "whether the disease of a diabetes patient progresses much within a year",
            "recipients": "whoever runs the demo",
            "recipients_pool": "yes",
            "purpose": "demonstration",
            "background_knowledge": "age, sex and BMI of every patient; the data are public",
        }
    }
    uri = store(folder)
    client = mlflow.MlflowClient(tracking_uri=uri)
    if client.get_experiment_by_name(EXPERIMENT) is None:
        client.create_experiment(
            EXPERIMENT, artifact_location=(folder.resolve() / "mlruns").as_uri()
        )
    runs = {
        act.name: act.explanations.log(experiment=EXPERIMENT, tracking_uri=uri, run_name=act.name)
        for act in acts
    }
    report = PrivacyReport.of_runs(list(runs.values()), inputs=inputs, tracking_uri=uri)
    report.save(folder / REPORT)
    return runs, report


def store(folder: Path) -> str:
    """Return the address of the MLflow store in a folder."""
    return f"sqlite:///{folder / 'mlflow.db'}"


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
_SHOWN = 2  # patients whose explanations are printed


def introduce(data: Patients, population: Population, k: int, console: Console) -> None:
    """Say what the data is and how exposed the people in it are."""
    risk = population.risk_profile(k)
    console.rule("[bold]The patients")
    console.print(
        f"{len(data.train)} diabetes patients (scikit-learn's, real and public) and a random forest"
        " that says whether the disease progresses much within a year; it is right on"
        f" {data.accuracy:.0%} of other patients. Publicly known: {', '.join(KNOWN)}. Private:"
        f" blood pressure and six blood values.\n\n[bold]{risk.unique:.0%}[/] of them are the only"
        f" one with their age, sex and BMI; [bold]{risk.below_k:.0%}[/] share these with fewer than"
        f" {k - 1} others.\n\n{len(data.queries)} other patients are predicted a high progression"
        " and ask what would have to be different for a low one."
    )


def show(act: Act, queries: pd.DataFrame, population: Population, console: Console) -> None:
    """Show the first released explanations beside what would have left without protection."""
    released = [entry for entry in act.explanations.generalized if entry.query in act.raw.index][
        :_SHOWN
    ]
    console.print()
    console.rule(f"[bold]{act.name}: before and after")
    table = Table("", *queries.columns, box=None, pad_edge=False, header_style="bold")
    told = Table.grid(padding=(0, 2))
    for entry in released:
        factual, raw, cells = (
            queries.loc[[entry.query]].iloc[0],
            act.raw.loc[[entry.query]].iloc[0],
            entry.cells(),
        )
        table.add_row(f"patient {entry.query}", *map(_cell, factual), style="dim")
        table.add_row("  before", *(_cell(raw[name]) for name in queries.columns), style="red")
        table.add_row(
            "  after", *(cells[name] for name in queries.columns), style="green", end_section=True
        )
        told.add_row(f"[dim]patient {entry.query}")
        told.add_row("  [red]before", _whose(raw, population))
        sentence = entry.text({str(name): value for name, value in factual.items()})
        told.add_row("  [green]after", f"{sentence} {entry.certificate.k} people match this.")
    console.print(table)
    console.print(
        "Before: what would be released without protection, shown because this data is public.",
        style="dim",
    )
    console.print()
    console.print(told)


def _whose(raw: pd.Series, population: Population) -> str:
    """Say what somebody who knows a training patient's quasi-identifiers learns from a raw
    counterfactual.
    """
    equal = (
        population.frame.astype(float)
        .sub(raw[population.frame.columns].astype(float))
        .abs()
        .lt(0.001)
    )
    found = equal[equal[KNOWN].all(axis=1)]
    who = f"Age {_cell(raw['age'])}, sex {_cell(raw['sex'])}, BMI {_cell(raw['bmi'])}"
    if found.empty:
        return f"{who} matches no training patient."
    people = (
        "exactly one training patient" if len(found) == 1 else f"{len(found)} training patients"
    )
    private = found.drop(columns=KNOWN)
    learnt = int(private.sum(axis=1).max())
    return (
        f"{who} matches {people}. Anyone who knows this learns {learnt} of the"
        f" {private.shape[1]} private values."
    )


_FIGURES = {
    "asked": ("asked", "d"),
    "copies": ("native_rate", ".0%"),
    "near": ("near_native_rate", ".0%"),
    "released": ("released", "d"),
    "withheld": ("withheld", "d"),
    "least k": ("k_min", ".0f"),
    "rerun": ("k_effective_min", ".0f"),
    "NCP": ("ncp_mean", ".3f"),
    "pureness": ("pureness_mean", ".3f"),
}
"""Columns of the last table: a figure of all explanations, and its form."""


def summarize(acts: list[Act], console: Console) -> None:
    """Print the figures of all explanations."""
    console.print()
    console.rule("[bold]All explanations")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("explainer", no_wrap=True)
    for name in _FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    for act in acts:
        found = act.explanations.summary()
        figures = ((found[figure], form) for figure, form in _FIGURES.values())
        table.add_row(
            act.name, *("–" if value is None else format(value, form) for value, form in figures)
        )
    console.print(table)
    console.print(
        "copies, near: share of the raw counterfactuals that equal a training patient, or nearly."
        " least k: fewest people who match an explanation. rerun: fewest people left if an attacker"
        " repeats the protection for everybody. NCP: mean information loss, 0 to 1. pureness: mean"
        " share of the value combinations for which the model agrees.",
        style="dim",
    )


def farewell(
    runs: Mapping[str, str], report: PrivacyReport, folder: Path, console: Console
) -> None:
    """Say what was written and what to open."""
    console.print()
    console.rule("[bold]Logged to MLflow")
    for name, run_id in runs.items():
        console.print(f"run {run_id}  {name}")
    checks = Counter(check.status for check in report.data.checks)
    said = ", ".join(
        f"{number} {status.replace('_', ' ')}" for status, number in sorted(checks.items())
    )
    console.print()
    console.rule("[bold]Report")
    console.print(
        f"{folder / REPORT}: verdict [bold]{report.verdict}[/] ({said}). Review means that"
        " some checks need an answer that only people can give, and that no attack was run yet."
    )
    port = 5000
    console.print(
        f"\nOpen:  {folder / REPORT} in a browser, and\n       mlflow ui --backend-store-uri"
        f" {store(folder)} --port {port}\nthen   http://127.0.0.1:{port}, experiment"
        f" “{EXPERIMENT}”: metrics cfk.* and artifacts cfk/",
        soft_wrap=True,
    )


def _cell(value: Any) -> str:
    return f"{float(value):.4g}"


def run(*, k: int, patients: int, folder: Path, console: Console, progress: Bar) -> int:
    """Tell the story; return the exit code. `progress` draws a bar while explainers work."""
    check_store(store(folder))
    policy = PrivacyPolicy(k=k)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        data = load_patients(patients)
        features = data.train.drop(columns="progression")
        schema = Schema.from_frame(
            features,
            quasi_identifiers=KNOWN,
            nominal=["sex"],
            immutable=["age", "sex"],
            titles=TITLES,
            units=UNITS,
            outcomes=OUTCOMES,
        )
        population = Population.from_frame(features, schema)
    introduce(data, population, k, console)
    acts = []
    for name, play in explainers(console).items():
        with quiet(), progress(f"explaining with {name}", console) as told:
            acts.append(play(name, data, population, policy, told))
    for act in acts:
        show(act, data.queries, population, console)
    summarize(acts, console)
    with quiet():
        runs, report = log(acts, folder)
    farewell(runs, report, folder, console)
    return 1 if any(act.explanations.summary()["released_native"] for act in acts) else 0
