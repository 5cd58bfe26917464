"""Ask a catalogue chosen queries about one person after another, then guess who is behind an
answer, and their values.

Run it from the repository's root: ``python tests/benchmarks/chosen.py --data FOLDER [--tables
heart,cmc] [--k 10]
[--victims 5] [--asked 10000]``. The attacker knows everybody's quasi-identifiers, who has the
desired predicted outcome, the model and the product. All queries have the victim's
quasi-identifiers; in every second batch private attributes alone may vary, so that the region of an
answer must hold the victim. Private values of queries are at first those of people of the same
source (test rows), then also those that came back, with some changed until the model refuses.

Of each answer whose region holds the victim the attacker strikes out who has another outcome, and
for whom the model refuses its private values: `left`. `name` is the chance to name the person whose
private values these are, where they are somebody's inside; `guess` the chance that the private
values that came back most often, or any of them, are those of somebody who could have been the
victim, whichever is more.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, PrivacyPolicy, Region
from printing import DATA, arguments, heading, line
from tables import TABLES, Case, case, read, split

BATCHES = 10
HEAD = (
    "table",
    "k",
    "victims",
    "queries",
    "answers",
    "different",
    "fewest left",
    "name %",
    "guess %",
    "1/k %",
)
Values = tuple[Any, ...]


def queries_about(
    table: Case, own: pd.Series, known: pd.DataFrame, count: int, random: Any
) -> pd.DataFrame:
    """Return so many rows with somebody's quasi-identifiers that the model refuses, or as many as
    are found.
    """
    schema, found = table.population.schema, pd.DataFrame()
    for _ in range(20):
        rows = (
            known.iloc[random.integers(0, len(known), 2 * count)]
            .reset_index(drop=True)
            .astype(object)
        )
        for name in schema.private:
            hit = random.random(len(rows)) < 2 / len(schema.private)
            rows.loc[hit, name] = random.choice(known[name].to_numpy(dtype=object), hit.sum())
        for name in schema.quasi_identifiers:
            rows[name] = own[name]
        rows = table.population.conform(rows[list(schema.features)])
        found = pd.concat(
            [found, rows[table.model.predict(rows) != table.desired]], ignore_index=True
        )
        if len(found) >= count:
            break
    return found.head(count)


def ask(
    table: Case, anonymizer: KAnonymizer, row: int, others: pd.DataFrame, asked: int
) -> Iterator[Any]:
    """Yield what comes back, with a region that holds the victim; queries follow what came
    before.
    """
    population, random = table.population, np.random.default_rng(row)
    private, own = list(population.schema.private), population.frame.iloc[row]
    known, came = others, set[Values]()
    for batch in range(BATCHES):
        queries = queries_about(table, own, known, asked // BATCHES, random)
        if queries.empty:
            return
        vary: dict[str, Any] = {"features_to_vary": private} if batch % 2 and private else {}
        found = anonymizer.explain(queries, **vary).generalized
        yield len(queries), [entry for entry in found if row in population.members(entry.region)]
        came |= {tuple(entry.released[name] for name in private) for entry in found}
        back = pd.DataFrame(list(came), columns=private)
        known = pd.concat(
            [others, back.sample(len(others), replace=True, random_state=batch)], ignore_index=True
        )


def left(table: Case, region: Region, values: Values, desired: np.ndarray) -> np.ndarray:
    """Return who is inside, has the desired outcome, and would have it with these private
    values.
    """
    rows = table.population.members(region)
    rows = rows[desired[rows]]
    people = table.population.frame.iloc[rows].reset_index(drop=True).astype(object)
    for name, value in zip(table.population.schema.private, values, strict=True):
        people[name] = pd.Series([value] * len(people), dtype=object)
    asked = table.population.conform(people)
    return rows[np.asarray(table.model.predict(asked)) == table.desired]


def attack(table: Case, k: int, victims: int, asked: int, others: pd.DataFrame) -> str:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k, private_values="exact")).fit(
        table.population, table.model, table.desired
    )
    frame, private = table.population.frame, list(table.population.schema.private)
    desired = (
        np.asarray(table.model.predict(frame[list(table.population.schema.features)]))
        == table.desired
    )
    own = [tuple(values) for values in frame[private].astype(object).itertuples(index=False)]
    sent, answers, different, fewest, named, guessed = 0, 0, 0, [], [], []
    for row in np.random.default_rng(0).choice(np.flatnonzero(desired), victims, replace=False):
        came: Counter[tuple[Region, Values]] = Counter()
        for queries, entries in ask(table, anonymizer, int(row), others, asked):
            sent, answers = sent + queries, answers + len(entries)
            came.update((e.region, tuple(e.released[name] for name in private)) for e in entries)
        different += len(came)
        for region, values in came:
            who = left(table, region, values, desired)
            fewest.append(len(who))
            named += [1 / len(who)] if any(own[person] == values for person in who) else []
        guessed += guesses({region for region, _ in came}, came, own, table, desired)
    return line(table.name, k, victims, sent, answers, different, min(fewest, default="–"), *percent(named, guessed),
                f"{100 / k:.1f}")  # fmt: skip


def guesses(
    regions: set[Region],
    came: Mapping[tuple[Region, Values], int],
    own: Sequence[Values],
    table: Case,
    desired: Any,
) -> Iterator[float]:
    """Yield per region, over everybody in it who could have been the victim, the chance that a
    guess is right.
    """
    for region in regions:
        counts = Counter({values: n for (where, values), n in came.items() if where == region})
        rows = table.population.members(region)
        could = [own[person] for person in rows[desired[rows]]]
        often = counts.most_common(1)[0][0]
        yield max(
            np.mean([mine == often for mine in could]),
            np.mean([mine in counts for mine in could]) / len(counts),
        )


def percent(*figures: Sequence[float]) -> Iterator[str]:
    yield from (f"{100 * np.mean(found):.1f}" if len(found) else "–" for found in figures)


def main() -> None:
    options = arguments(__doc__, data=DATA, tables=TABLES, k=10, victims=5, asked=10_000)
    warnings.simplefilter("ignore")
    print(heading(*HEAD), flush=True)
    for name in options.tables:
        table = case(name, options.data, 1)
        others = split(read(name, options.data)[0], 0.6, 0)[1][
            list(table.population.schema.features)
        ]
        print(attack(table, options.k, options.victims, options.asked, others), flush=True)


if __name__ == "__main__":
    main()
