"""`cfk audit frontier`: what every k would cost for a table of counterfactuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cfk_plugin.commands.files import check_report, write_report
from cfk_plugin.commands.inputs import Inputs
from cfk_plugin.commands.protect import progress_bar
from cfk_plugin.errors import InputError
from cfk_plugin.frontier import Frontier, frontier

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.metrics import Estimate

_PLOTS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk audit frontier --help``."""

    inputs: Inputs
    ks: str | None
    compare: bool
    seed: int
    output: Path | None
    plot: Path | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Measure, show, write, plot and log; return 0, or 3 when nothing was released at any k."""
    check_report(job.output)
    _check_plot(job.plot)
    ks = _ks(job.ks)
    case = job.inputs.read()
    with progress_bar("protecting", err) as told:
        found = frontier(
            case.raw,
            population=case.population,
            model=case.model,
            desired=case.desired,
            policy=case.policy,
            ks=ks,
            factuals=case.factuals,
            method=job.inputs.method,
            compare=job.compare,
            seed=job.seed,
            progress=told,
        )
    if job.output is not None:
        write_report(job.output, found.to_json(indent=1))
    if job.plot is not None:
        _plot(job.plot, found)
    if job.track or job.experiment:
        run_id = found.log(experiment=job.experiment)
        err.print(f"logged to MLflow run {run_id}", highlight=False)
    _show(found, out)
    return 0 if any(point.released for point in found) else 3


def _ks(text: str | None) -> Sequence[int] | None:
    """Return the k asked for; what is no number is refused before anything is read."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError("--ks takes whole numbers with commas between, as 2,5,10") from None


def _check_plot(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() not in _PLOTS:
        raise InputError(f"{path}: the plot must end in {', '.join(_PLOTS[:-1])} or {_PLOTS[-1]}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder does not exist")


def _plot(path: Path, found: Frontier) -> None:
    from matplotlib.figure import Figure

    from cfk_plugin.plots import plot_frontier

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    plot_frontier(found, ax=figure.add_subplot())
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or type(error).__name__})") from error


def _show(found: Frontier, out: Console) -> None:
    table = Table("k", "released", "least k", "information loss", "pureness", "withheld")
    for point in found:
        loss, pureness = (
            (point.common_ncp_mean, point.common_pureness_mean)
            if found.common
            else (point.ncp_mean, point.pureness_mean)
        )
        fewest = "–" if point.k_min is None else str(point.k_min)
        figures = (_text(figure) for figure in (loss, pureness, point.suppressed_rate))
        table.add_row(str(point.k), str(point.released), fewest, *figures)
    out.print(table)
    over = f"the {found.common} of {found.asked} counterfactuals that are released at every k"
    if found.common == found.asked:
        over = f"all {found.asked} counterfactuals"
    elif not found.common:
        over = f"what each k releases of {found.asked}: rows do not compare, as none is released at every k"
    out.print(
        f"Means with 95 % intervals; information loss and pureness are over {over}.", highlight=False, soft_wrap=True
    )


def _text(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "–"
    return f"{estimate.value:.3f} ({estimate.low:.3f}–{estimate.high:.3f})"
