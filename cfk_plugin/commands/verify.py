"""`cfk verify`: whether a file of released explanations is k-anonymous with respect to a population."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cfk_plugin.commands.files import read_json, read_schema, read_table
from cfk_plugin.commands.recount import Finding, recount, refuse_prototypes, stated_k, verdict
from cfk_plugin.errors import CFKError, InputError, PolicyError
from cfk_plugin.population import Population

if TYPE_CHECKING:
    from rich.console import Console

_EXIT = {"pass": 0, "fail": 1, "review": 3}
_SHOWN = 20


def run(released: Path, train: Path, schema: Path, k: int | None, console: Console) -> int:
    """Recount a file and say what was found; return the exit code."""
    content, rows = read_json(released), read_table(train)
    try:
        refuse_prototypes(content)
    except InputError as error:
        raise InputError(f"{released}: {error}") from None
    k = k if k is not None else stated_k(content)
    if k is None:
        raise InputError(f"{released}: names no k of a policy; give --k")
    if k < 2:
        raise PolicyError(f"k must be a whole number >= 2, got {k}")
    population = Population.from_frame(rows, read_schema(schema, rows))
    try:
        findings = recount(content, population, k)
    except CFKError as error:
        raise InputError(f"{released}: {error}") from None
    answer = verdict(findings)
    _show(findings, console)
    counts = [f.k for f in findings if f.k is not None]
    least = f"; the smallest region holds {min(counts)} people" if counts else ""
    console.print(
        f"[bold]{answer}[/]: {len(counts)} released, {len(findings) - len(counts)} withheld, k = {k}, "
        f"{population.n_people} people{least}",
        highlight=False,
    )
    return _EXIT[answer]


def _show(findings: Sequence[Finding], console: Console) -> None:
    wrong = [f for f in findings if f.problem]
    if not wrong:
        return
    table = Table("explanation", "people", "stated", "problem")
    for finding in wrong[:_SHOWN]:
        cells = (finding.position, finding.k, finding.stated, finding.problem)
        table.add_row(*("–" if cell is None else str(cell) for cell in cells))
    console.print(table)
    if len(wrong) > _SHOWN:
        console.print(f"... and {len(wrong) - _SHOWN} more")
