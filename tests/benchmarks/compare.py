"""Compare the protectors on the same models and counterfactuals, in one process; print Markdown
tables.

Run it with ``python tests/benchmarks/compare.py --data FOLDER [--tables adult,cmc] [--limit 50]
[--k 10]``.
"""

from __future__ import annotations

import time

import numpy as np

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.data.combinations import Grid
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from cfk_plugin.metrics import ncp
from cfk_plugin.protection.lookup.exact import ExactProtector
from cfk_plugin.protection.lookup.grasp import GraspProtector
from cfk_plugin.protection.lookup.mondrian import MondrianProtector
from printing import DATA, arguments, heading, line
from tables import TABLES, Case, case

FIGURES = {
    "found": 0,
    "k min": 0,
    "NCP %": 2,
    "pureness %": 2,
    "pure %": 0,
    "proven %": 0,
} | dict.fromkeys(("solver ms", "model ms", "whole ms", "model calls"), 2)
RATIOS = ("GRASP solver / our solver", "GRASP whole / our solver", "GRASP whole / our whole")


def task_for(table: Case, policy: PrivacyPolicy) -> tuple[ProtectionRequest, LabelModel]:
    """Return a fresh task: nothing that an earlier method asked is remembered."""
    population = table.population
    model = LabelModel(table.model, population.schema.features)
    rows = TrainingLabels(model, population)
    # the paper's method needs them; known before the clock starts
    rows.labels(np.arange(population.n_rows))
    encoded = encode(table.counterfactuals, population.encoder)
    judge = DesiredOutcome.of(table.desired).test_for(model(encoded.frame))
    combination_outcomes = CombinationOutcomes(judge, rows, encoded.frame)
    model.calls, model.rows, model.seconds = 0, 0, 0.0
    return ProtectionRequest(
        population, policy, *encoded.quasi_identifiers, combination_outcomes
    ), model


def measure(table: Case, policy: PrivacyPolicy, protector: Protector) -> dict[str, float]:
    """Run one method on one table and recount what it found: NCP of the region, pureness of the
    whole grid.

    Times are milliseconds per explanation; of the solver, they are everything but the model's.
    """
    request, model = task_for(table, policy)
    started = time.perf_counter()
    proposals = protector.protect(request)
    whole, spent, calls = (
        value / len(request)
        for value in (time.perf_counter() - started, model.seconds, model.calls)
    )
    found = [(i, p) for i, p in enumerate(proposals) if p.region is not None]
    pureness = np.array([exact_pureness(request, i, p) for i, p in found])
    return {
        "found": len(found),
        "k min": min(table.population.count(p.region) for _, p in found),
        "NCP %": 100 * np.mean([ncp(p.region, table.population) for _, p in found]),
        "pureness %": 100 * pureness.mean(),
        "pure %": 100 * (pureness == 1.0).mean(),
        "proven %": 100 * np.mean([p.optimal for p in proposals]),
        "solver ms": 1e3 * (whole - spent),
        "model ms": 1e3 * spent,
        "whole ms": 1e3 * whole,
        "model calls": calls,
    }


def exact_pureness(
    request: ProtectionRequest, i: int, proposal: Proposal, budget: int = 20_000
) -> float:
    """Pureness over every combination (20,000 of them where there are more), asked apart from the
    measured time.
    """
    assert proposal.region is not None
    grid = Grid.of(proposal.region, request.population, request.codes[i])
    cells = grid.all() if grid.size <= budget else grid.sample(budget, np.random.default_rng(0))
    return float(request.combination_outcomes.ask(np.full(len(cells), i), cells).mean())


def methods(k: int) -> list[tuple[str, PrivacyPolicy, Protector]]:
    """Return what is compared."""
    least, purest = (
        PrivacyPolicy(guarantee="lookup", k=k, objective="ncp"),
        PrivacyPolicy(guarantee="lookup", k=k),
    )
    return [
        ("exact, ncp", least, ExactProtector()),
        ("exact, pureness", purest, ExactProtector()),
        ("grasp, ncp", least, GraspProtector()),
        ("grasp, pureness", purest, GraspProtector()),
        ("mondrian", purest, MondrianProtector()),
        ("mondrian, raw widths", purest, MondrianProtector(normalise=False)),
    ]


def print_comparison(table: Case, k: int) -> dict[str, dict[str, float]]:
    """Print one row per method and return them by name."""
    rows = {name: measure(table, policy, protector) for name, policy, protector in methods(k)}
    for name, row in rows.items():
        print(
            line(
                table.name,
                name,
                *(f"{row[column]:.{digits}f}" for column, digits in FIGURES.items()),
            ),
            flush=True,
        )
    return rows


def print_ratios(name: str, rows: dict[str, dict[str, float]]) -> None:
    """Print how many times less the exact method needs than GRASP with the same objective."""
    for objective in ("ncp", "pureness"):
        ours, theirs = rows[f"exact, {objective}"], rows[f"grasp, {objective}"]
        of = [("solver ms", "solver ms"), ("whole ms", "solver ms"), ("whole ms", "whole ms")]
        times = (f"{theirs[one] / ours[other]:.0f}" for one, other in of)
        better = (f"{ours[column] - theirs[column]:+.2f}" for column in ("NCP %", "pureness %"))
        print(line(name, objective, *times, *better), flush=True)


def print_proofs(table: Case) -> None:
    """Print the share of explanations with a proven optimum, and the largest proven gap of the
    others.
    """
    for objective in ("ncp", "pureness"):
        for k in (5, 10, 20):
            request, _ = task_for(
                table, PrivacyPolicy(guarantee="lookup", k=k, objective=objective)
            )  # type: ignore[arg-type]
            proposals = ExactProtector().protect(request)
            proven = 100 * np.mean([p.optimal for p in proposals])
            gaps = [p.gap for p in proposals if p.gap is not None and not p.optimal]
            heuristic = 100 * np.mean([p.gap is None for p in proposals])
            widest = f"{100 * max(gaps):.3f}" if gaps else "-"
            print(
                line(table.name, objective, k, f"{proven:.0f}", widest, f"{heuristic:.0f}"),
                flush=True,
            )


def print_overhead(table: Case, k: int) -> None:
    """Print what the whole pipeline costs beside the model, one explanation at a time and as a
    batch.
    """
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=k))
    anonymizer.fit(table.population, table.model, table.desired)
    anonymizer.transform(table.counterfactuals.head(2))
    single = [
        _without_model(anonymizer, table.counterfactuals.iloc[[i]])
        for i in range(len(table.counterfactuals))
    ]
    batch = _without_model(anonymizer, table.counterfactuals) / len(table.counterfactuals)
    print(
        f"| {table.name} | {np.median(single):.2f} | {np.percentile(single, 95):.2f} | {batch:.2f} |",
        flush=True,
    )


def _without_model(anonymizer: KAnonymizer, frame: object) -> float:
    before, started = anonymizer.model_.seconds, time.perf_counter()
    anonymizer.transform(frame)  # type: ignore[arg-type]
    return 1e3 * (time.perf_counter() - started - (anonymizer.model_.seconds - before))


def main() -> None:
    """Print all tables."""
    options = arguments(__doc__, data=DATA, tables=TABLES, limit=50, k=10)
    cases = [case(name, options.data, options.limit) for name in options.tables]
    for table in cases:  # compile, and build each index, before anything is timed
        ExactProtector().protect(task_for(table, PrivacyPolicy(guarantee="lookup", k=options.k))[0])
    print("\n" + heading("table", "method", *FIGURES))
    rows = {table.name: print_comparison(table, options.k) for table in cases}
    print("\n" + heading("table", "objective", *RATIOS, "NCP points", "pureness points"))
    for name, some in rows.items():
        print_ratios(name, some)
    print(
        "\n"
        + heading(
            "table", "objective", "k", "proven %", "widest proven gap, NCP points", "no proof %"
        )
    )
    for table in cases:
        print_proofs(table)
    print("\n" + heading("table", "one by one: median ms", "95th percentile ms", "batch: ms each"))
    for table in cases:
        print_overhead(table, options.k)


if __name__ == "__main__":
    main()
