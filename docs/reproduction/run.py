"""Run the experiments of the paper on its tables; write results, page, tables and figures.

    make reproduction DATA=FOLDER

The folder has a file ``NAME.csv.gz`` for each table; ``tables.toml`` says which columns and where
the rows come from. Everything takes about an hour, most of it in GRASP.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from reproduction.export import write_tables
from reproduction.figures import draw_figures
from reproduction.measure import (
    METHODS,
    NICE,
    Measurement,
    measure,
    measure_distances,
    measure_nice_distances,
)
from reproduction.page import PAGE, PAGE_WITH_FINDINGS, render
from reproduction.prepare import Prepared, prepare
from reproduction.results import KS, Results, StudyRow, aggregate, judge
from reproduction.studies import (
    FRONTIER_KS,
    PARAMETERS,
    USUAL,
    fairness_rows,
    frontier_row,
    parameter_row,
    plausibility_row,
)
from reproduction.tables import NAMES, Table, read_table

HERE = Path(__file__).resolve().parent

GRASP_LIMIT = 100
"""GRASP, which asks the model again and again, explains only that many instances of a table."""

DETAILED_TABLE = "german"
"""The table on which the paper tries parameters and measures distances ..."""

PARAMETERS_LIMIT = 15
PLAUSIBILITY_GRASP_LIMIT = 20
"""... with at most that many explanations here."""

LIBRARIES = ("cfk-plugin", "numpy", "pandas", "scikit-learn", "NICEx")


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make reproduction", description=__doc__)
    parser.add_argument("data", type=Path, help="folder with NAME.csv.gz of each table")
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--limit", type=int, default=1000, help="explanations of each table")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the results")
    options = parser.parse_args(arguments)
    tables = [read_table(name, options.data) for name in NAMES if name in options.tables]
    results = run(tables, options.limit)
    write(results, options.output.resolve())


def write(results: Results, output: Path) -> None:
    """Write results, page, tables and figures into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(results.to_json() + "\n", encoding="utf-8")
    draw_figures(results, output / "figures")
    write_tables(results, output / "tables")
    # The findings are written by hand, about the results in this folder.
    template = PAGE_WITH_FINDINGS if output == HERE else PAGE
    (output / "index.md").write_text(render(results, template), encoding="utf-8")
    print(f"written: {output / 'index.md'}")


@dataclass(frozen=True, kw_only=True)
class TableResults:
    """What was measured of one table."""

    main: list[Measurement]  # every method at every k, for the Tables 6, 7 and 9 to 12
    studies: dict[str, list[StudyRow]]


def run(tables: list[Table], limit: int) -> Results:
    """Measure everything on some tables.

    Parameters
    ----------
    tables : list of Table
    limit : int
        The largest number of explanations of a table. The paper explains the undesired ones among
        1,000 test rows.

    Returns
    -------
    Results
    """
    summaries = {}
    measurements: list[Measurement] = []
    studies: dict[str, list[StudyRow]] = {
        "parameters": [],
        "fairness": [],
        "plausibility": [],
        "frontier": [],
    }
    for table in tables:
        print(f"{table.name}: tuning the forest", flush=True)
        prepared = prepare(table, limit)
        summaries[table.name] = prepared.summary
        table_results = run_table(prepared)
        measurements += table_results.main
        for name, rows in table_results.studies.items():
            studies[name] += rows
    return Results(
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        versions={name: version(name) for name in LIBRARIES},
        tables=summaries,
        aggregates=[aggregate(measurement) for measurement in measurements],
        verdicts=judge(measurements),
        studies=studies,
    )


def run_table(prepared: Prepared) -> TableResults:
    """Measure everything on one table."""
    measured: dict[tuple[str, int], Measurement] = {}
    for method in METHODS:
        for k in KS:
            print(f"{prepared.name}: {method}, k = {k}", flush=True)
            n = GRASP_LIMIT if method == "grasp" else None
            measured[method, k] = measure(prepared, method, k, n=n)
    studies = {
        "fairness": [
            row
            for method in ("exact-pureness", "grasp")
            for k in KS
            for row in fairness_rows(measured[method, k])
        ],
        "frontier": run_frontier(prepared, measured),
    }
    if prepared.name == DETAILED_TABLE:
        studies["parameters"] = run_parameters(prepared)
        studies["plausibility"] = run_plausibility(prepared)
    return TableResults(main=list(measured.values()), studies=studies)


def run_frontier(
    prepared: Prepared, measured: dict[tuple[str, int], Measurement]
) -> list[StudyRow]:
    """Measure what every k costs; what the main tables have is not measured again."""
    print(f"{prepared.name}: what every k costs", flush=True)
    rows = []
    for method in ("exact-pureness", "exact-ncp"):
        for k in FRONTIER_KS:
            measurement = measured.get((method, k))
            if measurement is None:
                measurement = measure(prepared, method, k)
            rows.append(frontier_row(measurement))
    return rows


def run_parameters(prepared: Prepared) -> list[StudyRow]:
    """Vary one parameter of GRASP at a time, and k for the purest regions as well."""
    print(f"{prepared.name}: parameters of GRASP", flush=True)
    rows = []
    usual = measure(prepared, "grasp", USUAL["k"], n=PARAMETERS_LIMIT)
    for parameter, values in PARAMETERS.items():
        for value in values:
            if value == USUAL[parameter]:
                measurement = usual
            elif parameter == "k":
                measurement = measure(prepared, "grasp", value, n=PARAMETERS_LIMIT)
            else:
                measurement = measure(
                    prepared,
                    "grasp",
                    USUAL["k"],
                    n=PARAMETERS_LIMIT,
                    settings={parameter: value},
                )
            rows.append(parameter_row(parameter, value, measurement))
    for k in PARAMETERS["k"]:
        measurement = measure(prepared, "exact-pureness", k, n=PARAMETERS_LIMIT)
        rows.append(parameter_row("k", k, measurement))
    return rows


def run_plausibility(prepared: Prepared) -> list[StudyRow]:
    """Measure how far counterfactuals of NICE and regions are from the training rows."""
    print(f"{prepared.name}: distances to the training rows", flush=True)
    rows = [plausibility_row(measure_nice_distances(prepared, variant)) for variant in NICE]
    for method, n in (("grasp", PLAUSIBILITY_GRASP_LIMIT), ("exact-pureness", None)):
        for k in KS:
            rows.append(plausibility_row(measure_distances(prepared, method, k, n=n)))
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
