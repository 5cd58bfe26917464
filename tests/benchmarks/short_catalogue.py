"""Short catalogues: how many entries, how far for people who were not in the table, and what the
choice tells of refused people; print Markdown tables.

Run it with ``python tests/benchmarks/short_catalogue.py --data FOLDER [--tables heart german]``.

``--facts yes`` compares with FACTS (Kavouras et al., 2023) of aif360 on adult instead. It wants an
environment with ``aif360[FACTS]``, which the tests do not install. FACTS takes categories, so both
get the same table with its numbers cut into ranges, and the same model. Its rules are "if these
values, then those"; a rule reaches a refused person who has the former, and whom the model accepts
with the latter. What both change is measured alike: a range by how many ranges it is away, as a
share of all, any other value by 1. Age may only grow and sex stays, as FACTS has it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.frontier import nearest_points
from cfk_plugin.protection.answers.search import distances_if_true
from cfk_plugin.protection.catalogue.short_part import mean_cost, share_reached, short_part
from cfk_plugin.release.results import GeneralizedCounterfactual
from printing import DATA, arguments, heading, line
from tables import LEAVES, forest, read, split

Costs = NDArray[np.float64]

WITHIN = 0.03
K = 10
PEOPLE = 1_000
CUTS = {
    "age": [0, 25, 35, 45, 55, 65, 200],
    "hours_per_week": [-1, 25, 39, 40, 50, 60, 200],
    "capital_gain": [-1, 0, 5_000, 10_000, 200_000],
    "capital_loss": [-1, 0, 1_800, 200_000],
}
SUPPORT = 0.1  # the default of FACTS


def refused(model: Any, rows: pd.DataFrame, desired: Any, seed: int) -> pd.DataFrame:
    """Return refused people, at most `PEOPLE`."""
    people = rows[model.predict(rows) != desired]
    return people.sample(min(PEOPLE, len(people)), random_state=seed).reset_index(drop=True)


def costs_of(anonymizer: KAnonymizer, people: pd.DataFrame) -> Costs:
    """Return the distance of refused people to every entry; shape (n_people, n_entries)."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    encoder = anonymizer.population_.encoder
    limits = Constraints(encode(people, encoder), anonymizer.rules_)
    open_to = np.ones((len(people), 1), dtype=bool)
    return distances_if_true(catalogue, limits, open_to, np.arange(len(catalogue)))


def measure(name: str, data: Path) -> None:
    """Print a line about one table."""
    frame, about = read(name, data)
    features = about["features"]
    desired = about["desired_outcome"]
    train, test = split(frame, 0.6, 0)
    model = forest(train[features], train[about["target"]], 0, max_leaf_nodes=LEAVES[name])
    schema = Schema.from_frame(train[features], quasi_identifiers=about["quasi_identifiers"])
    population = Population.from_frame(train[features], schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, margin=0)).fit(population, model, desired)
    n_entries = len(anonymizer.published())
    started = time.process_time()
    about_part = anonymizer.published(within=WITHIN).short_catalogue
    seconds = time.process_time() - started
    assert about_part is not None
    # The same choice, by people of whom we know who they are.
    chosen_by = refused(model, train[features], desired, 0)
    others = refused(model, test[features], desired, 0)
    costs = costs_of(anonymizer, chosen_by)
    costs_of_others = costs_of(anonymizer, others)
    part = short_part(costs, WITHIN)
    relative = mean_cost(costs_of_others[:, part]) / mean_cost(costs_of_others)
    is_in_table = np.r_[np.ones(len(chosen_by)), np.zeros(len(others))]
    every = np.vstack([costs, costs_of_others])
    nearest = every[:, part].min(axis=1)
    extra = nearest - every.min(axis=1)
    print(
        line(
            name,
            n_entries,
            about_part.entries,
            f"{about_part.relative_cost:.2f}",
            f"{relative:.2f}",
            f"{share_reached(costs_of_others[:, part]):.1%}",
            f"{roc_auc_score(is_in_table, -nearest):.3f}",
            f"{roc_auc_score(is_in_table, -extra):.3f}",
            f"{seconds:.1f} s",
        ),
        flush=True,
    )


# --- FACTS ---


class OnRanges:
    """A model of people of whom some values are ranges, for FACTS: 1 for the desired outcome."""

    def __init__(self, model: Pipeline, features: Sequence[str], desired: Any) -> None:
        self.model = model
        self.features = list(features)
        self.desired = desired

    def predict(self, rows: pd.DataFrame) -> NDArray[np.int64]:
        """Return the outcome of each row."""
        plain = rows[self.features].copy()
        plain["age"] = plain["age"].map(lambda part: CUTS["age"].index(int(part.left)))
        return np.asarray(self.model.predict(plain) == self.desired).astype(np.int64)


def differences(people: pd.DataFrame, points: pd.DataFrame) -> Costs:
    """Return how much each person would have to change; the rows of both belong together."""
    total = np.zeros(len(people))
    for name in people:
        if name in CUTS:
            n_steps = len(CUTS[name]) - 2
            away = people[name].to_numpy(dtype=float) - points[name].to_numpy(dtype=float)
            total += np.abs(away) / n_steps
        else:
            total += people[name].to_numpy(dtype=str) != points[name].to_numpy(dtype=str)
    return total


def costs_of_rules(rules: Sequence[Any], people: pd.DataFrame, model: Any, desired: Any) -> Costs:
    """Return what each rule of FACTS costs each person; infinite where it does not reach one."""
    costs = np.full((len(people), len(rules)), np.inf)
    for i, (condition, action, *_) in enumerate(rules):
        plain = [
            CUTS["age"].index(int(value.left)) if name == "age" else value
            for name, value in zip(condition.features, condition.values, strict=True)
        ]
        matches = np.ones(len(people), dtype=bool)
        for name, value in zip(condition.features, plain, strict=True):
            matches &= (people[name] == value).to_numpy()
        if not matches.any():
            continue
        points = people[matches].copy()
        for name, value in zip(action.features, action.values, strict=True):
            points[name] = CUTS["age"].index(int(value.left)) if name == "age" else value
        is_true = np.asarray(model.predict(points) == desired)
        at = np.flatnonzero(matches)[is_true]
        costs[at, i] = differences(people[matches], points)[is_true]
    return costs


def costs_of_entries(
    entries: Sequence[GeneralizedCounterfactual],
    people: pd.DataFrame,
    anonymizer: KAnonymizer,
    model: Any,
    desired: Any,
) -> Costs:
    """Return what each entry costs each person; infinite where it is not true or permitted."""
    costs = np.full((len(people), len(entries)), np.inf)
    records = people.to_dict("records")
    for i, entry in enumerate(entries):
        points = nearest_points([entry] * len(people), records, anonymizer.population_)
        points = anonymizer.population_.conform(points)[list(people)]
        is_true = np.asarray(model.predict(points) == desired)
        is_permitted = (points["sex"].to_numpy() == people["sex"].to_numpy()) & (
            points["age"].to_numpy(dtype=float) >= people["age"].to_numpy(dtype=float)
        )
        at = is_true & is_permitted
        costs[at, i] = differences(people, points)[at]
    return costs


def compare_with_facts(data: Path) -> None:
    """Print a table of FACTS' rules and of the short catalogue."""
    frame, about = read("adult", data)
    frame = frame.fillna("missing")
    for name, cuts in CUTS.items():
        frame[name] = pd.cut(frame[name], cuts, labels=False).astype(int)
    train, test = split(frame, 0.6, 0)
    rows = train[about["features"]]
    model = forest(rows, train[about["target"]], 0, max_leaf_nodes=LEAVES["adult"])
    chosen_by = refused(model, rows, about["desired_outcome"], 0)
    others = refused(model, test[about["features"]], about["desired_outcome"], 0)
    columns = ("what", "rules or entries", "people of the table reached", "mean cost")
    print(heading(*columns, "others reached", "mean cost", "processor time"))
    show_catalogue(rows, about, model, chosen_by, others)
    show_facts(rows, about, model, chosen_by, others)


def show_catalogue(
    rows: pd.DataFrame,
    about: dict[str, Any],
    model: Pipeline,
    chosen_by: pd.DataFrame,
    others: pd.DataFrame,
) -> None:
    """Print what the short catalogue costs refused people of the table, and others."""
    desired = about["desired_outcome"]
    started = time.process_time()
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=about["quasi_identifiers"],
        monotone={"age": "increase"},
        immutable=["sex"],
    )
    population = Population.from_frame(rows, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, margin=0)).fit(population, model, desired)
    short = anonymizer.published(within=WITHIN)
    seconds = time.process_time() - started
    costs = costs_of_entries(short.generalized, chosen_by, anonymizer, model, desired)
    costs_of_others = costs_of_entries(short.generalized, others, anonymizer, model, desired)
    show("short catalogue", costs, costs_of_others, seconds)
    print(f"the short catalogue: {short.short_catalogue}")


def show_facts(
    rows: pd.DataFrame,
    about: dict[str, Any],
    model: Pipeline,
    chosen_by: pd.DataFrame,
    others: pd.DataFrame,
) -> None:
    """Print what the rules of FACTS cost the same people, and a short part of the rules."""
    from aif360.sklearn.detectors.facts import valid_ifthens

    desired = about["desired_outcome"]
    started = time.process_time()
    ranges = pd.IntervalIndex.from_breaks(CUTS["age"])
    rules = valid_ifthens(
        X=rows.assign(age=[ranges[i] for i in rows["age"]]),
        model=OnRanges(model, about["features"], desired),
        sensitive_attribute="sex",
        freqitem_minsupp=SUPPORT,
        verbose=False,
    )
    seconds = time.process_time() - started
    costs = costs_of_rules(rules, chosen_by, model, desired)
    costs_of_others = costs_of_rules(rules, others, model, desired)
    some = short_part(costs, WITHIN)
    show("FACTS, all rules", costs, costs_of_others, seconds)
    show("FACTS, short part of them", costs[:, some], costs_of_others[:, some], seconds)


def show(name: str, costs: Costs, costs_of_others: Costs, seconds: float) -> None:
    """Print a line about some rules or entries."""
    print(
        line(
            name,
            costs.shape[1],
            f"{share_reached(costs):.1%}",
            f"{mean_cost(costs):.2f}",
            f"{share_reached(costs_of_others):.1%}",
            f"{mean_cost(costs_of_others):.2f}",
            f"{seconds:.0f} s",
        ),
        flush=True,
    )


def main() -> None:
    """Measure the tables, or compare with FACTS."""
    given = arguments(
        __doc__,
        data=str(DATA),
        tables=["heart", "german", "cmc", "informs", "hospital", "adult"],
        facts="no",
    )
    warnings.simplefilter("ignore")
    if given.facts == "yes":
        compare_with_facts(Path(given.data))
        return
    print(
        heading(
            "table",
            "entries",
            "short part",
            "distance, relative",
            "of people outside",
            "of these reached",
            "AUC, nearest",
            "AUC, extra distance",
            "processor time",
        )
    )
    for name in given.tables:
        measure(name, Path(given.data))


if __name__ == "__main__":
    main()
