"""Write the survival of answers, from lasting-answers.json, to the page that reports it.

``tests/benchmarks/survival.py --json docs/explanation/lasting-answers.json`` measured the figures.
Run ``python docs/explanation/make_lasting_answers.py`` from the repository's root afterwards. It
writes a small table to ``docs/how-to/when-the-model-is-trained-again.md``, and every figure to
``survival.csv`` in the folder of that name. With ``--check`` it writes nothing, and its exit code
says whether one of the files has other figures.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE / "lasting-answers.json"
PAGE = HERE.parent / "how-to" / "when-the-model-is-trained-again.md"
CSV = PAGE.with_suffix("") / "survival.csv"

TABLES = ("heart", "hospital", "german", "adult", "informs", "cmc")
MODELS = {"forest": "forest", "boosting": "boosting", "logistic": "logistic regression"}
METHODS = {
    "nearest": "nearest training row",
    "NICE": "NICE",
    "DiCE-random": "DiCE, random search",
    "DiCE-genetic": "DiCE, genetic search",
    "margin-0": "catalogue, `margin=0`",
    "default": "catalogue, default",
    "later": "catalogue, `later=`",
}
COLUMNS = {
    "people": "people",
    "answered": "answered_share",
    "true": "accepted_by_explained_model_share",
    "survival": "survival_share",
    "survival_all": "survives_all_later_models_share",
    "distance": "distance_relative_to_nearest_training_row",
    "changes_mean": "changes_mean",
    "changes_median": "changes_median",
    "many_changes": "more_than_four_changes_share",
    "margin": "margin",
    "seconds": "seconds",
}
"""Names of a method's figures: in the JSON, and in the CSV."""

# figures of a method on a table with a model, by their name in the JSON
Figures = dict[str, Any]
# all of them, by "table model method"
Checkpoints = dict[str, Figures]


def of_tables(kept: Checkpoints, model: str, method: str) -> list[Figures]:
    """Return a method's figures on the tables for which they are known, in the tables' order."""
    names = [f"{table} {model} {method}" for table in TABLES]
    return [kept[name] for name in names if name in kept]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def survival_cell(every: list[Figures]) -> str:
    """Return mean and least survival, if all tables are known."""
    if len(every) < len(TABLES):
        return "–"
    shares = [figures["survival"] for figures in every]
    return f"{percent(mean(shares))} ({percent(min(shares))})"


def distance_cell(every: list[Figures]) -> str:
    """Return the geometric mean of distances, if all tables are known."""
    if len(every) < len(TABLES):
        return "–"
    return f"{geometric_mean(figures['distance'] for figures in every):.2f}"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def table(kept: Checkpoints) -> list[str]:
    """Return the table of the page: survival for each kind of model, and distance with forests."""
    rows = []
    for method, title in METHODS.items():
        cells = [survival_cell(of_tables(kept, model, method)) for model in MODELS]
        rows.append([title, *cells, distance_cell(of_tables(kept, "forest", method))])
    return markdown(["answers", *MODELS.values(), "distance (forest)"], rows)


def render(page: str, kept: Checkpoints) -> str:
    """Return the page with its table between ``<!-- survival -->`` and ``<!-- end -->``."""
    before, _, rest = page.partition("<!-- survival -->\n")
    after = rest.partition("<!-- end -->")[2]
    content = "\n".join(table(kept))
    return f"{before}<!-- survival -->\n\n{content}\n\n<!-- end -->{after}"


def render_csv(kept: Checkpoints) -> str:
    """Return every figure as CSV, one row for each table, kind of model and method."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["table", "model", "answers", *COLUMNS.values()])
    for name in TABLES:
        for model in MODELS:
            for method in METHODS:
                figures = kept.get(f"{name} {model} {method}")
                if figures is None:
                    continue
                lines.writerow([name, model, method, *(figures[column] for column in COLUMNS)])
    return text.getvalue()


def main() -> int:
    """Write page and CSV, or check them."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    rendered, rendered_csv = render(page, kept), render_csv(kept)
    if "--check" in sys.argv[1:]:
        is_kept = page == rendered and CSV.read_text(encoding="utf-8") == rendered_csv
        return 0 if is_kept else 1
    PAGE.write_text(rendered, encoding="utf-8")
    CSV.parent.mkdir(exist_ok=True)
    CSV.write_text(rendered_csv, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
