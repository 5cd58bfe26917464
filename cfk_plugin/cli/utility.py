"""cfk audit utility, frontier: what counterfactuals are worth, and what every k would cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.audit import audit
from cfk_plugin.cli.frame import command, console, say, show
from cfk_plugin.errors import InputError, whole_file

if TYPE_CHECKING:
    from cfk_plugin.frontier import Frontier
    from cfk_plugin.metrics import Estimate, Utility


@command(
    "utility",
    "cfk audit utility train.csv queries.csv cf.csv -s schema.json -m model.joblib -d low --holdout"
    " test.csv",
    audit,
)
def audit_utility(
    train: opt.Train,
    queries: Annotated[Path, typer.Argument(help="Every query asked, CSV or Parquet.")],
    counterfactuals: Annotated[
        Path,
        typer.Argument(help="One row per query, or a column 'query' with its position, from 0."),
    ],
    schema: opt.SchemaFile,
    model: opt.Model,
    desired: opt.Desired = "opposite",
    threshold: opt.Threshold = None,
    output: opt.Output = None,
    holdout: Annotated[
        Path | None, typer.Option(help="People who are not in the training rows: chance.")
    ] = None,
    seed: opt.Seed = 0,
) -> int:
    """Measure counterfactuals of any method: do they flip, how far are they, does the data support
    them, are they rows.

    Exit code 0, or 3 when no query was answered: the figures are no promise that could fail.
    """
    import json

    from cfk_plugin._files import (
        check_report,
        load_model,
        read_schema,
        read_table,
        wanted,
        write_report,
    )
    from cfk_plugin.data.population import Population
    from cfk_plugin.metrics import utility

    check_report(output)
    rows, asked, given = (read_table(path) for path in (train, queries, counterfactuals))
    roles = read_schema(schema, rows)
    others = None if holdout is None else read_table(holdout)
    population, judge = Population.from_frame(rows, roles), load_model(model, threshold)
    answered = None
    if QUERY not in roles.features and QUERY in given.columns and len(given):
        if given[QUERY].dtype.kind not in "iu":
            raise InputError(
                f"column {QUERY!r} of the counterfactuals must hold whole numbers: the query of"
                " each, from 0"
            )
        answered = given[QUERY].to_numpy(dtype="int64")
    found = utility(
        asked,
        given,
        population,
        model=judge,
        desired=wanted(desired, judge, rows[list(roles.features)]),
        answered=answered,
        holdout=others,
        random_state=seed,
    )
    if output is not None:
        write_report(output, json.dumps(found.to_dict(), indent=1, allow_nan=False))
    _show_utility(found)
    return 0 if found.answered else 3


QUERY = "query"
"""Column of the counterfactuals that says which query each answers, unless it is a feature."""

_SHOWN = {
    "flipping_ratio": "flipped, of all queries",
    "l1": "to the query, sum",
    "euclidean": "to the query, Euclidean",
    "features_changed": "number",
    "nn1": "to the nearest desired row",
    "nn5": "to the 5 nearest",
    "unseen_pair": "has an unseen value pair",
    "copies": "equals a training row",
    "singled_out": "fits exactly one person",
}


def _show_utility(found: Utility) -> None:
    chance = found.chance
    fresh = {
        name: getattr(chance.fresh, name, None) if chance is not None else None for name in _SHOWN
    }
    rows = [
        (name, means, _interval(getattr(found, name)), _interval(fresh[name]))
        for name, means in _SHOWN.items()
    ]
    show(("figure", "", "value (95 %)", "fresh rows"), rows)
    say(
        f"{found.answered} of {found.queries} queries answered; {found.desired_rows} of"
        f" {found.training_rows} training rows have the desired outcome"
    )
    if chance is None:
        return
    verdicts = {
        None: "not measured",
        True: "more than chance",
        False: "not shown to be above chance",
    }
    for name, is_above in found.above_chance.items():
        among = [getattr(chance, f"{name}_{where}") for where in ("train", "holdout")]
        say(
            f"{name}: {_interval(among[0])} among {chance.rows} training rows,"
            f" {_interval(among[1])} among as many holdout rows: {verdicts[is_above]}"
        )


def _interval(estimate: Estimate | None, to: str = " to ") -> str:
    if estimate is None or math.isnan(estimate.value):
        return "–"
    return f"{estimate.value:.3f} ({estimate.low:.3f}{to}{estimate.high:.3f})"


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

    from cfk_plugin.plots import plot_frontier

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    plot_frontier(found, ax=figure.add_subplot())
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=150)


def _show_frontier(found: Frontier) -> None:
    rows, common = [], "common_" if found.common else ""
    for point in found:
        figures = [getattr(point, f"{common}{name}") for name in ("ncp_mean", "pureness_mean")]
        fewest = "–" if point.k_min is None else str(point.k_min)
        rows.append([str(point.k), str(point.released), fewest])
        rows[-1] += [_interval(each, "–") for each in (*figures, point.withheld_rate)]
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
