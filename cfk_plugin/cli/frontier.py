"""cfk audit frontier: what every k would cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.audit import audit
from cfk_plugin.cli.frame import command, console, say, show
from cfk_plugin.errors import whole_file

if TYPE_CHECKING:
    from cfk_plugin.frontier import Frontier
    from cfk_plugin.metrics import Estimate


def _interval(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "–"
    return f"{estimate.value:.3f} ({estimate.low:.3f}–{estimate.high:.3f})"


@command(
    "frontier",
    "cfk audit frontier train.csv cf.csv -s schema.json -m model.joblib -d low --plot"
    " frontier.png\ncfk audit frontier train.csv cf.csv -s schema.json -m model.joblib -d low --ks"
    " 2,5,10,20 -o frontier.json --track",
    audit,
)
def audit_frontier(
    given: opt.RawInputs,
    place: opt.ReportPlace,
    ks: Annotated[
        str | None, typer.Option(help="The k to try, separated by commas. Default: 2 to 30.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Where the plot goes, .png, .svg or .pdf, with a line at --k."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare with no protection and with Mondrian over the whole table."
        ),
    ] = False,
    seed: opt.Seed = 0,
) -> int:
    """Measure what every k would cost on the same counterfactuals: information loss, pureness,
    share withheld.

    Nothing is released. Exit code 0, or 3 when nothing could be released at any k.
    """
    from cfk_plugin._files import check_output, check_report, progress_bar
    from cfk_plugin.frontier import frontier
    from cfk_plugin.plots import load_matplotlib

    check_report(place.output)
    check_output(plot, "plot", (".png", ".svg", ".pdf"))
    if plot is not None:
        load_matplotlib()  # raises before any work if it is not installed
    tried = None if ks is None else opt.numbers("--ks", ks)
    case = given.read()
    with progress_bar("protecting", console(stderr=True)) as told:
        found = frontier(
            case.raw,
            population=case.population,
            model=case.model,
            desired=case.desired,
            policy=case.policy,
            ks=tried,
            factuals=case.factuals,
            method=given.method,
            compare=compare,
            seed=seed,
            progress=told,
        )
    if plot is not None:
        _plot(plot, found)
    place.keep(found)
    _show_frontier(found)
    return 0 if any(point.released for point in found) else 3


def _plot(path: Path, found: Frontier) -> None:
    from matplotlib.figure import Figure

    from cfk_plugin.plots import FrontierDisplay

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FrontierDisplay.from_frontier(found, ax=figure.add_subplot())
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=150)


def _show_frontier(found: Frontier) -> None:
    prefix = "common_" if found.common else ""
    rows = []
    for point in found:
        fewest = "–" if point.k_min is None else str(point.k_min)
        estimates = (
            getattr(point, f"{prefix}ncp_mean"),
            getattr(point, f"{prefix}pureness_mean"),
            point.withheld_rate,
        )
        intervals = [_interval(estimate) for estimate in estimates]
        rows.append([str(point.k), str(point.released), fewest, *intervals])
    show(("k", "released", "least k", "information loss", "pureness", "withheld"), rows)
    over = f"the {found.common} of {found.asked} counterfactuals that are released at every k"
    if found.common == found.asked:
        over = f"all {found.asked} counterfactuals"
    elif not found.common:
        over = (
            f"what each k releases of {found.asked}: rows do not compare, as none is released at"
            " every k"
        )
    say(f"Means with 95 % intervals; information loss and pureness are over {over}.")
