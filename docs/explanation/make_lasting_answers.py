"""Write the tables of lasting-answers.md from lasting-answers.json.

``tests/benchmarks/survival.py --json docs/explanation/lasting-answers.json`` measured the figures.
Run ``python docs/explanation/make_lasting_answers.py`` from the repository's root afterwards. With
``--check`` it writes nothing, and its exit code says whether the page has other figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE / "lasting-answers.json"
PAGE = HERE / "lasting-answers.md"

TABLES = ("heart", "hospital", "german", "adult", "informs", "cmc")
MODELS = {"forest": "forest", "boosting": "boosting", "logistic": "logistic regression"}
METHODS = {
    "nearest": "nearest row",
    "NICE": "NICE",
    "DiCE-random": "DiCE, random",
    "DiCE-genetic": "DiCE, genetic",
    "margin-0": "`margin=0`",
    "default": "default",
    "later": "`later=`",
}

# figures of a method on a table with a model, by their name in the JSON
Figures = dict[str, Any]
# all of them, by "table model method"
Kept = dict[str, Figures]


def of_tables(kept: Kept, model: str, method: str) -> list[Figures]:
    """Return a method's figures on the tables for which they are known, in the tables' order."""
    names = [f"{table} {model} {method}" for table in TABLES]
    return [kept[name] for name in names if name in kept]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def survival_cell(figures: Figures | None) -> str:
    """Return survival and distance, and the margin where there is one."""
    if figures is None:
        return "–"
    cell = f"{percent(figures['survival'])} at {figures['distance']:.2f}"
    if figures["margin"] is None:
        return cell
    return f"{cell}, m = {figures['margin']:.2f}"


def mean_cell(every: Sequence[Figures]) -> str:
    """Return mean survival and the geometric mean of distances, if all tables are known."""
    if len(every) < len(TABLES):
        return "–"
    survival = mean(figures["survival"] for figures in every)
    distance = geometric_mean(figures["distance"] for figures in every)
    return f"{percent(survival)} at {distance:.2f}"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def by_table(kept: Kept, model: str) -> list[str]:
    """Return survival and distance of every method on every table with one kind of model."""
    rows = []
    for table in TABLES:
        cells = [survival_cell(kept.get(f"{table} {model} {method}")) for method in METHODS]
        rows.append([table, *cells])
    rows.append(["mean", *(mean_cell(of_tables(kept, model, method)) for method in METHODS)])
    return markdown(["table", *METHODS.values()], rows)


def by_model(kept: Kept) -> list[str]:
    """Return the mean and the least survival of every method with every kind of model."""
    rows = []
    for method, title in METHODS.items():
        cells = []
        for model in MODELS:
            every = of_tables(kept, model, method)
            cell = mean_cell(every)
            if cell != "–":
                least = min(figures["survival"] for figures in every)
                cell = f"{cell}, least {percent(least)}"
            cells.append(cell)
        rows.append([title, *cells])
    return markdown(["answers", *MODELS.values()], rows)


def changes(kept: Kept) -> list[str]:
    """Return how many features the answers ask to change, over all tables with forests."""
    rows = []
    for method, title in METHODS.items():
        every = of_tables(kept, "forest", method)
        if len(every) < len(TABLES):
            rows.append([title, "–", "–", "–"])
            continue
        average = mean(figures["changes_mean"] for figures in every)
        largest = max(figures["changes_median"] for figures in every)
        many = mean(figures["many_changes"] for figures in every)
        rows.append([title, f"{average:.1f}", f"{largest:g}", percent(many)])
    head = ["answers", "changes, mean", "largest median of a table", "more than four changes"]
    return markdown(head, rows)


def tables(kept: Kept) -> dict[str, list[str]]:
    """Return every table of the page, by its name there."""
    return {"forests": by_table(kept, "forest"), "models": by_model(kept), "changes": changes(kept)}


def render(page: str, kept: Kept) -> str:
    """Return the page with its tables between ``<!-- name -->`` and ``<!-- end -->``."""
    for name, lines in tables(kept).items():
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        after = rest.partition("<!-- end -->")[2]
        content = "\n".join(lines)
        page = f"{before}<!-- {name} -->\n\n{content}\n\n<!-- end -->{after}"
    return page


def main() -> int:
    """Write the page, or check it."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    rendered = render(page, kept)
    if "--check" in sys.argv[1:]:
        return int(page != rendered)
    PAGE.write_text(rendered, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
