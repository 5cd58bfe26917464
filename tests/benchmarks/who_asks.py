"""Recognise the people who ask in what is logged of their answers.

Run it from the repository's root: ``python tests/benchmarks/who_asks.py --data ../shared/data``.

Of each table, 80 people whom the model rejects ask a catalogue, with the default policy. Somebody
who can read the runs knows these 80 people, the catalogue and the model. So they can compute
everybody's answer themselves, and compare what is logged. A row that fits several people is a guess
among these. The table says the chance to name the right person, by what the rows have: the answers
as they were given, or what a run has of them; and the share of private values in the rows that are
the query's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cfk_plugin import KAnonymizer, PrivacyPolicy
from printing import arguments, heading, line
from tables import TABLES, case


def chance_to_name(rows: Sequence[dict[str, Any]]) -> float:
    """Return the chance to name who a row belongs to, for somebody who knows everybody's row."""
    texts = [json.dumps({**row, "query": 0}, sort_keys=True, default=str) for row in rows]
    alike = Counter(texts)
    return sum(1 / alike[text] for text in texts) / len(texts)


def share_of_own(rows: Sequence[dict[str, Any]], queries: pd.DataFrame) -> float:
    """Return the share of the private values in rows that are the query's own."""
    own = []
    for row in rows:
        query = queries.iloc[row["query"]]
        own += [value == query[name] for name, value in json.loads(row["released"]).items()]
    return sum(own) / max(len(own), 1)


def main() -> None:
    asked = arguments(__doc__, data="../shared/data", limit=80)
    print(
        heading("table", "answered", "own: answers", "own: runs", "named: answers", "named: runs")
    )
    for name in TABLES:
        found = case(name, Path(asked.data), asked.limit, key=b"a key")
        fitted = KAnonymizer(policy=PrivacyPolicy(k=10)).fit(
            found.population, found.model, desired=found.desired
        )
        queries = found.queries
        explanations = fitted.explain(queries)
        released = [entry for entry in explanations if entry.status == "released"]
        answers = [entry.row(explanations.columns) for entry in released]
        logged = [row for row in explanations.to_record().rows if row["status"] == "released"]
        figures = [share_of_own(rows, queries) for rows in (answers, logged)]
        figures += [chance_to_name(rows) for rows in (answers, logged)]
        print(line(name, len(released), *(f"{figure:.2f}" for figure in figures)))


if __name__ == "__main__":
    main()
