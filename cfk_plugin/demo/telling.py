"""What the demo prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.table import Table

from cfk_plugin.data.population import Population
from cfk_plugin.demo.acts import Act
from cfk_plugin.demo.logged import EXPERIMENT, REPORT, Logged, store
from cfk_plugin.demo.patients import KNOWN, Patients
from cfk_plugin.release.results import Phrase

if TYPE_CHECKING:
    from rich.console import Console

_PHRASES: Mapping[str, Phrase] = {
    "age": Phrase("were {} years older", "were {} years younger", "were {} years of age"),
    "sex": Phrase("", "", "were of sex {}"),
    "bmi": Phrase("had a BMI higher by {}", "had a BMI lower by {}", "had a BMI of {}"),
    "bp": Phrase("had a blood pressure higher by {}", "had a blood pressure lower by {}", "had a blood pressure of {}"),
    **{
        name: Phrase(f"had {label} higher by {{}}", f"had {label} lower by {{}}", f"had {label} of {{}}")
        for name, label in {
            "chol": "cholesterol",
            "ldl": "LDL",
            "hdl": "HDL",
            "tc_hdl": "a cholesterol ratio",
            "log_tg": "log triglycerides",
            "glucose": "glucose",
        }.items()
    },
}
_SHOWN = 2  # patients whose explanations are printed


def introduce(data: Patients, population: Population, k: int, console: Console) -> None:
    """Say what the data is and how exposed the people in it are."""
    risk = population.risk_profile(k)
    console.rule("[bold]The patients")
    console.print(
        f"{len(data.train)} diabetes patients (scikit-learn's, real and public) and a random forest that says whether "
        f"the disease progresses much within a year; it is right on {data.accuracy:.0%} of other patients. "
        f"Publicly known: {', '.join(KNOWN)}. Private: blood pressure and six blood values.\n\n"
        f"[bold]{risk.unique:.0%}[/] of them are the only one with their age, sex and BMI; "
        f"[bold]{risk.below_k:.0%}[/] share these with fewer than {k - 1} others.\n\n"
        f"{len(data.queries)} other patients are predicted a high progression and ask what would have to be "
        "different for a low one.",
        highlight=False,
    )


def show(act: Act, queries: pd.DataFrame, population: Population, console: Console) -> None:
    """Show the first released explanations beside what would have left without protection."""
    released = [entry for entry in act.explanations.generalized if entry.query in act.raw.index][:_SHOWN]
    console.print()
    console.rule(f"[bold]{act.name}: before and after")
    table = Table("", *queries.columns, box=None, pad_edge=False, header_style="bold")
    told = Table.grid(padding=(0, 2))
    for entry in released:
        factual, raw, cells = queries.loc[[entry.query]].iloc[0], act.raw.loc[[entry.query]].iloc[0], entry.cells()
        table.add_row(f"patient {entry.query}", *map(_cell, factual), style="dim")
        table.add_row("  before", *(_cell(raw[name]) for name in queries.columns), style="red")
        table.add_row("  after", *(cells[name] for name in queries.columns), style="green", end_section=True)
        told.add_row(f"[dim]patient {entry.query}")
        told.add_row("  [red]before", _whose(raw, population))
        sentence = entry.text({str(name): value for name, value in factual.items()}, _PHRASES)
        told.add_row("  [green]after", f"{sentence} {entry.certificate.k} people fit this.")
    console.print(table)
    console.print("Before: what leaves without protection, shown here only because this data is public.", style="dim")
    console.print()
    console.print(told)


def _whose(raw: pd.Series, population: Population) -> str:
    """Say what somebody who knows a training patient's quasi-identifiers learns from a raw counterfactual."""
    equal = population.frame.astype(float).sub(raw[population.frame.columns].astype(float)).abs().lt(0.001)
    found = equal[equal[KNOWN].all(axis=1)]
    who = f"Age {_cell(raw['age'])}, sex {_cell(raw['sex'])}, BMI {_cell(raw['bmi'])}"
    if found.empty:
        return f"{who} is no training patient."
    people = "exactly one training patient" if len(found) == 1 else f"{len(found)} training patients"
    private = found.drop(columns=KNOWN)
    learnt = int(private.sum(axis=1).max())
    return f"{who} is {people}: whoever knows that learns {learnt} of the {private.shape[1]} private values."


def summarise(acts: list[Act], console: Console) -> None:
    """Print the figures of all explanations."""
    console.print()
    console.rule("[bold]All explanations")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("explainer", no_wrap=True)
    names = "asked", "copies", "near", "released", "withheld", "least k", "rerun", "NCP", "pureness"
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for act in acts:
        s = act.explanations.summary()
        figures = (
            str(s["asked"]),
            _figure(s["native_rate"], ".0%"),
            _figure(s["near_native_rate"], ".0%"),
            str(s["released"]),
            str(s["suppressed"]),
            _figure(s["k_min"], ".0f"),
            _figure(s["k_effective_min"], ".0f"),
            _figure(s["ncp_mean"], ".3f"),
            _figure(s["pureness_mean"], ".3f"),
        )
        table.add_row(act.name, *figures)
    console.print(table)
    console.print(
        "Copies, near: raw counterfactuals that are a training patient, or nearly. k: people behind an explanation; "
        "rerun: of whom are left for somebody who reruns the protection for everybody. "
        "NCP: information lost, mean, 0 to 1. Pureness: share of the region where the model keeps the promise, mean.",
        style="dim",
        highlight=False,
    )


def farewell(logged: Logged, folder: Path, console: Console) -> None:
    """Say what was written and what to open."""
    console.print()
    console.rule("[bold]Logged to MLflow")
    for name, run_id in logged.runs.items():
        console.print(f"run {run_id}  {name}", highlight=False)
    checks = Counter(check.status for check in logged.report.data.checks)
    said = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in sorted(checks.items()))
    console.print()
    console.rule("[bold]Report")
    console.print(
        f"{folder / REPORT}: verdict [bold]{logged.report.verdict}[/] ({said}). Unmeasured is never a pass: nobody has "
        "attacked these explanations yet, or answered what only people can.",
        highlight=False,
    )
    port = 5000
    console.print(
        f"\nOpen:  {folder / REPORT} in a browser, and\n"
        f"       mlflow ui --backend-store-uri {store(folder)} --port {port}\n"
        f"then   http://127.0.0.1:{port}, experiment “{EXPERIMENT}”: metrics cfk.* and artifacts cfk/",
        highlight=False,
        soft_wrap=True,
    )


def _cell(value: Any) -> str:
    return f"{float(value):.4g}"


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
