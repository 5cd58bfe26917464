"""Write the tables of docs/reference/benchmarks.md from the files that the benchmarks wrote.

python docs/reference/make_benchmarks.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = Path(__file__).parents[2] / "tests" / "benchmarks"

FIGURES = {
    "answered": "share of people with an answer",
    "true": "share of answers that are true",
    "distance_to_row": "distance / that of the nearest row",
    "distance_to_nice": "distance / that of NICE",
    "changes_mean": "changes per answer",
    "needless_margin": "share with a needless change",
    "ncp": "NCP",
    "pureness": "pureness",
    "survival": "survival",
    "entries": "entries of the catalogue",
    "fit_seconds": "seconds to fit",
    "fit_seconds_per_model_fit": "the same / seconds to train the model",
    "ms_batch": "ms per answer, 60 at once",
    "ms_alone": "ms per answer, alone",
}

SCENARIOS = {
    "look-up": "knows everyone's quasi-identifiers, and names someone in the region",
    "rerun": "runs the product for everyone in the region",
    "outcome-known": "also knows what the model said about everyone",
    "model-asked": "also asks the model about everyone with the released private values",
    "posing": "asks in the name of a person in the table",
    "trilateration": "locates a person by asking from many places",
    "inversion": "asks whose row can have produced an answer",
    "steering": "the same, with more queries",
    "number-owner": "takes a published number for one person's",
    "membership": "asks whether a person is in the table",
    "sybil-rank": "adds k − 1 rows, and ranks 20 records by whether they are the victim's",
    "sybil-name": "the same, and names one of the 20",
    "joiner-desired": "asks which of 16 people with the outcome joined",
    "joiner-refused": "the same, of people without the outcome",
    "turnover-joined": "looks for the record of someone who joined in what is new",
    "turnover-left": "looks for the record of someone who left in what is gone",
    "turnover-who": "asks who joined, from their private values",
    "outcome-share": "reads off regions whose outcome is certain",
    "outcome-certain": "the same: how often this is right",
    "outside-regions": "takes people in no region for refused",
    "outside-after-refit": "the same after people were replaced",
}


def quality() -> str:
    """Return the figures of the quality table, one column per data set, means over the splits."""
    means = pd.read_csv(RESULTS / "quality-core.csv").groupby("table").mean(numeric_only=True)
    rows = means[list(FIGURES)].rename(columns=FIGURES).T.map(_three_digits)
    return _markdown(rows.reset_index(names="figure"))


def attacks() -> str:
    """Return the attack table, one row per attack and one column per data set."""
    results = pd.read_csv(RESULTS / "attacks.csv")
    for column in ("value", "guessing", "control"):
        results[column] = results[column].map("{:.2f}".format).replace("nan", "–")
    results["others"] = results["guessing"] + "; " + results["control"]
    results["cell"] = results["value"] + " (" + results["others"] + ")"
    cells = results.pivot(index="attack", columns="table", values="cell")
    cells = cells.loc[list(SCENARIOS), results["table"].unique()]
    measures = results.drop_duplicates("attack").set_index("attack")["measure"]
    cells.insert(0, "the attacker ...", pd.Series(SCENARIOS))
    cells.insert(1, "figure", measures.replace("auc", "AUC"))
    return _markdown(cells.reset_index())


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _markdown(table: pd.DataFrame) -> str:
    """Return a table of texts in Markdown."""
    lines = [table.columns, ["---"] * table.shape[1], *table.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rendered(page: str) -> str:
    """Return the page with its tables written again."""
    for name, table in (("quality", quality()), ("attacks", attacks())):
        block = f"<!-- {name} -->\n\n{table}\n\n<!-- end -->"
        page = re.sub(f"<!-- {name} -->.*?<!-- end -->", lambda _, new=block: new, page, flags=re.S)
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
