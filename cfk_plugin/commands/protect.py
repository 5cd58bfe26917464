"""`cfk protect`: a table of counterfactuals in, released explanations out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import Progress

from cfk_plugin.anonymizer import KAnonymizer
from cfk_plugin.commands.files import (
    check_output,
    load_model,
    read_policy,
    read_schema,
    read_table,
    write_output,
)
from cfk_plugin.counterfactual import SUPPRESSION_REASONS
from cfk_plugin.errors import InputError
from cfk_plugin.label_model import LabelModel
from cfk_plugin.ledger import Ledger
from cfk_plugin.population import Population

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from cfk_plugin.explanations import Explanations
    from cfk_plugin.protection.base import Progress as Told


_FEW = 20  # more outcomes than these are hardly labels, and are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk protect --help``."""

    train: Path
    schema: Path
    model: str
    counterfactuals: Path
    factuals: Path | None
    desired: str
    policy: Path | None
    changes: Mapping[str, Any]
    method: str
    output: Path | None
    ledger: str | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Protect, write and log; return 0 when all is released, 3 when some, 1 when nothing is."""
    check_output(job.output)
    policy = read_policy(job.policy, job.changes)
    train, raw = read_table(job.train), read_table(job.counterfactuals)
    factuals = read_table(job.factuals) if job.factuals is not None else None
    schema = read_schema(job.schema, train)
    population = Population.from_frame(train, schema)
    model = load_model(job.model)
    desired = wanted(job.desired, model, train[list(schema.features)])
    with Ledger(job.ledger) if job.ledger else nullcontext() as ledger:
        anonymizer = KAnonymizer(policy=policy, method=job.method, ledger=ledger)
        anonymizer.fit(population, model=model, desired=desired)
        with progress_bar("protecting", err) as told:
            explanations = anonymizer.transform(raw, factuals, progress=told)
    if job.output is not None:
        write_output(job.output, explanations.to_frame(), explanations.to_json(indent=1))
    else:
        out.file.write(explanations.to_json(indent=1) + "\n")
    if job.track or job.experiment:
        run_id = explanations.log(experiment=job.experiment)
        err.print(f"logged to MLflow run {run_id}", highlight=False)
    _say(explanations, job.output, err)
    return 0 if not explanations.suppressed else 3 if explanations.released else 1


def wanted(text: str, model: Any, features: pd.DataFrame) -> Any:
    """Turn the outcome's name into the model's own label; ``opposite`` stays as it is."""
    if text == "opposite":
        return text
    labels: Any = getattr(model, "classes_", None)
    if labels is None:
        labels = np.unique(LabelModel(model, list(features.columns))(features))
    for label in labels:
        if str(label) == text or (_number(text) is not None and _number(label) == _number(text)):
            return label
    known = f"it has {', '.join(map(str, labels))}" if len(labels) <= _FEW else f"it has {len(labels)} others"
    raise InputError(f"--desired {text}: the model has no such outcome; {known}")


@contextmanager
def progress_bar(what: str, console: Console) -> Iterator[Told]:
    """Yield a progress callback; it draws a bar on a terminal and nothing elsewhere."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield told


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _say(explanations: Explanations, output: Path | None, err: Console) -> None:
    summary = explanations.summary()
    where = f" in {output}" if output is not None else ""
    err.print(f"{summary['released']} released, {summary['suppressed']} withheld{where}", highlight=False)
    for reason, count in summary["reasons"].items():
        err.print(f"  {count} withheld: {SUPPRESSION_REASONS[reason]}", highlight=False)
    if summary["released"]:
        err.print(
            f"  smallest region {summary['k_min']:.0f} people, information loss {summary['ncp_mean']:.3f}, "
            f"pureness {summary['pureness_mean']:.1%}",
            highlight=False,
        )
