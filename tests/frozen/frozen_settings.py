"""The settings whose releases are frozen: synthetic tables, models, and every option spelled out.

A new default changes no record here: no setting relies on a default of a policy, `KAnonymizer`,
`protect` or `DPPrototypes`. A test compares the options below with those that the product has.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.serving.handler import RequestHandler
from cfk_plugin.serving.spark import explain_spark, protect_spark
from frozen_records import SHARED_LIBRARIES, CountingModel, Recording
from local_spark import on_spark

POPULATION_KEY = b"the population key of the records"
LEDGER_KEY = b"the ledger key of all the records"

POLICY: Mapping[str, Any] = {
    "k": 5,
    "guarantee": "catalogue",
    "objective": "pureness",
    "min_pureness": None,
    "max_ncp": None,
    "l": None,
    "t": None,
    "near_native": "auto",
    "on_infeasible": "withhold",
    "private_values": "exact",
    "rare_values": "release",
    "alpha": None,
    "move_towards_query": None,
    "margin": 0.0,
}
"""Every field of a policy."""

ANONYMIZER: Mapping[str, Any] = {
    "method": "auto",
    "plugins": (),
    "reference": None,
    "ledger": None,
    "measure_k_effective": False,
    "effort": "fast",
    "change_cost": 0.0,
    "rounding": False,
    "seed": 0,
}
"""Every option of `KAnonymizer` but the policy."""

FEW_CHANGES: Mapping[str, Any] = {"change_cost": 0.1, "rounding": True}
"""Options by which answers ask for few changes and rounded numbers."""

PROTECT: Mapping[str, Any] = {
    "k": None,
    "policy": None,
    "threshold": None,
    "later": (),
    "start": "explainer",
    "ledger": None,
    "track": False,
    "plugins": (),
    "groups": None,
    "sample_explainer": 0,
    "debug": False,
}
"""Every option of `protect` but explainer, model, population, outcome and method."""

PROTOTYPES: Mapping[str, Any] = {
    "epsilon": 1.0,
    "delta": 0.0,
    "rows": 300,
    "serve": "rows",
    "prototypes": 10,
    "plausibility": None,
    "move_towards_query": None,
    "model_access": "public",
    "model_epsilon": None,
    "model_delta": None,
    "rows_per_person": 1,
    "people": None,
    "accountant": None,
    "seed": 7,
}
"""Every option of `DPPrototypes`."""

CONSTRAINTS: Mapping[str, Any] = {
    "features_to_vary": ["age", "grade", "pay", "debt"],
    "permitted_range": {"pay": [10, 45]},
    "max_changes": None,
}
UNCONSTRAINED: Mapping[str, Any] = {
    "features_to_vary": "all",
    "permitted_range": None,
    "max_changes": None,
}


# --- tables and models ----------------------------------------------------------------------------


def loan_table() -> pd.DataFrame:
    """Return 220 people with numbers, categories, ranks and missing values."""
    random = np.random.default_rng(3)
    n = 220
    table = pd.DataFrame(
        {
            "age": random.integers(18, 70, n),
            "city": random.choice(list("ABCD"), n).astype(object),
            "grade": random.choice(["low", "mid", "high"], n).astype(object),
            "pay": random.integers(10, 60, n),
            "debt": random.normal(10, 4, n).round(1),
            "job": random.choice(["clerk", "nurse", "smith"], n).astype(object),
        }
    )
    is_missing = random.random(n) < 0.05
    is_missing[0] = False  # so that the column starts with a number
    return table.assign(debt=table["debt"].mask(is_missing))


def visits_table() -> pd.DataFrame:
    """Return 240 visits of up to 120 people: several rows per person, dates, flags and a hierarchy."""
    random = np.random.default_rng(5)
    n = 240
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 60, n), unit="D")
    table = pd.DataFrame(
        {
            "person": random.integers(0, 120, n),
            "born": random.integers(1940, 2005, n),
            "town": random.choice(["Aalst", "Ghent", "Namur", "Liege"], n).astype(object),
            "insured": random.random(n) < 0.7,
            "day": days,
            "bill": random.gamma(3.0, 40.0, n).round(2),
            "ward": random.choice(["eye", "heart", "skin"], n).astype(object),
        }
    )
    return table.assign(born=table["born"].mask(random.random(n) < 0.05))


LOANS = loan_table()
VISITS = visits_table()


def loan_score(rows: pd.DataFrame) -> Any:
    bonus = rows["city"].map({"A": 0, "B": 6, "C": -6, "D": 3}).fillna(0)
    score = rows["pay"] - rows["debt"].fillna(12) + rows["age"] / 4 + bonus
    return score.to_numpy(dtype=float)


def two_labels(rows: pd.DataFrame) -> Any:
    return np.where(loan_score(rows) > 38, "yes", "no")


def loan_probability(rows: pd.DataFrame) -> Any:
    """Return the probability of a loan, at least one half where `two_labels` says yes."""
    return 1 / (1 + np.exp((38 - loan_score(rows)) / 8))


def three_labels(rows: pd.DataFrame) -> Any:
    names = np.array(["low", "mid", "high"], dtype=object)
    return names[np.digitize(loan_score(rows), [28, 45])]


def visit_labels(rows: pd.DataFrame) -> Any:
    is_old = (rows["born"].fillna(1970) < 1965).to_numpy()
    is_dear = (rows["bill"] > 120).to_numpy()
    is_heart = (rows["ward"] == "heart").to_numpy()
    return (is_old.astype(int) + is_dear + is_heart > 1).astype(int)


def loan_population(**declared: Any) -> Population:
    schema = Schema.from_frame(
        LOANS,
        quasi_identifiers=["age", "city", "grade"],
        ordinal={"grade": ["low", "mid", "high"]},
        sensitive=["job"],
        **declared,
    )
    return Population.from_frame(LOANS, schema, key=POPULATION_KEY)


def visit_population() -> Population:
    regions = {"Aalst": ["Flanders"], "Ghent": ["Flanders"]}
    regions |= {"Namur": ["Wallonia"], "Liege": ["Wallonia"]}
    schema = Schema.from_frame(
        VISITS,
        quasi_identifiers=["born", "town", "insured"],
        hierarchies={"town": regions},
        subject="person",
    )
    return Population.from_frame(VISITS, schema, key=POPULATION_KEY)


@dataclass(frozen=True)
class Goal:
    """A model with the outcome that is asked of it."""

    predict: Callable[[pd.DataFrame], Any]
    desired: Any

    def is_met(self, rows: pd.DataFrame) -> Any:
        """Return a mask of shape (n,). For "opposite", queries are those with the label "low"."""
        labels = self.predict(rows)
        if self.desired == "opposite":
            return labels != "low"
        if isinstance(self.desired, tuple):
            low, high = self.desired
            return (labels >= low) & (labels <= high)
        if isinstance(self.desired, set):
            return pd.Series(labels).isin(self.desired).to_numpy()
        return labels == self.desired


GOALS: Mapping[str, Goal] = {
    "label": Goal(two_labels, "yes"),
    "set": Goal(three_labels, {"mid", "high"}),
    "range": Goal(loan_score, (40.0, 60.0)),
    "opposite": Goal(three_labels, "opposite"),
}


def awkward_rows() -> pd.DataFrame:
    """Return a row without an age, one with an unknown city, and one that is as it should be."""
    rows = LOANS.iloc[[0, 1, 2]].copy()
    rows["age"] = rows["age"].astype(object)
    rows.iloc[0, rows.columns.get_loc("age")] = None
    rows.iloc[1, rows.columns.get_loc("city")] = "Z"
    return rows


# --- calls ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is asked in one setting: counterfactuals, and the queries that they answer."""

    counterfactuals: pd.DataFrame
    factuals: pd.DataFrame

    @classmethod
    def of(cls, goal: Goal, n: int = 9) -> Case:
        is_met = goal.is_met(LOANS)
        return cls(
            counterfactuals=pd.concat([LOANS[is_met].head(n), awkward_rows()]),
            factuals=pd.concat([LOANS[~is_met].head(n), awkward_rows()]),
        )


def fit_counted(
    population: Population,
    goal: Goal,
    recording: Recording,
    policy: Mapping[str, Any],
    **options: Any,
) -> KAnonymizer:
    """Fit an anonymizer with all options given; the recording counts what its model is asked.

    Several fits of one recording share its model, and are counted together.
    """
    if recording.model is None:
        recording.model = CountingModel(goal.predict)
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(**{**POLICY, **policy}), **{**ANONYMIZER, **options}
    )
    return anonymizer.fit(population, recording.model, goal.desired, threshold=None)


def transform(
    anonymizer: KAnonymizer, counterfactuals: pd.DataFrame, factuals: pd.DataFrame | None
) -> Explanations:
    return anonymizer.transform(
        counterfactuals, factuals, instance_based=True, progress=lambda done, total: None
    )


def record_transforms(recording: Recording, anonymizer: KAnonymizer, case: Case) -> None:
    """Protect counterfactuals with their factuals: all of them in one call, and three alone."""
    together = transform(anonymizer, case.counterfactuals, case.factuals)
    recording.add("transform with factuals", together)
    for i in range(3):
        alone = transform(anonymizer, case.counterfactuals.iloc[[i]], case.factuals.iloc[[i]])
        recording.add(f"transform of row {i} alone", alone)


def record_answers(recording: Recording, anonymizer: KAnonymizer, queries: pd.DataFrame) -> None:
    """Answer queries from the catalogue in each way, and publish it."""
    few = queries.head(5)
    recording.add("explain", anonymizer.explain(queries, answers=1, **UNCONSTRAINED))
    recording.add("explain alone", anonymizer.explain(few.head(1), answers=1, **UNCONSTRAINED))
    recording.add("three answers", anonymizer.explain(few, answers=3, **UNCONSTRAINED))
    recording.add("constrained", anonymizer.explain(few, answers=1, **CONSTRAINTS))
    recording.add("published", anonymizer.published()[:25])


def of_policy(policy: Mapping[str, Any], goal: Goal, **options: Any) -> Recording:
    """Record what a policy releases on the loans."""
    recording = Recording()
    anonymizer = fit_counted(loan_population(), goal, recording, policy, **options)
    case = Case.of(goal)
    without_factuals = transform(anonymizer, case.counterfactuals, None)
    recording.add("transform", without_factuals)
    record_transforms(recording, anonymizer, case)
    if anonymizer.policy_.guarantee == "catalogue":
        record_answers(recording, anonymizer, case.factuals)
    return recording


def of_margin(margin: Any) -> Recording:
    """Record answers with a margin; the model gives probabilities."""
    recording = Recording()
    recording.model = CountingModel(loan_probability)
    policy = PrivacyPolicy(**{**POLICY, "margin": margin})
    anonymizer = KAnonymizer(policy=policy, **ANONYMIZER)
    anonymizer.fit(loan_population(), recording.model, 1, threshold=0.5, later=())
    record_answers(recording, anonymizer, Case.of(LABEL).factuals)
    return recording


def of_few_changes(policy: Mapping[str, Any], **options: Any) -> Recording:
    """Record answers that ask for few changes and rounded numbers, with and without a limit."""
    recording = of_policy(policy, LABEL, **FEW_CHANGES, **options)
    anonymizer = fit_counted(loan_population(), LABEL, recording, policy, **FEW_CHANGES, **options)
    queries = Case.of(LABEL).factuals
    for limit in (1, 2):
        limited = anonymizer.explain(queries, answers=1, **UNCONSTRAINED | {"max_changes": limit})
        recording.add(f"at most {limit} changes", limited)
    return recording


def of_visits(guarantee: str) -> Recording:
    """Record releases of a table with several rows per person, dates and a hierarchy."""
    recording = Recording()
    goal = Goal(visit_labels, 1)
    anonymizer = fit_counted(visit_population(), goal, recording, {"guarantee": guarantee})
    is_met = goal.is_met(VISITS)
    case = Case(VISITS[is_met].head(9), VISITS[~is_met].head(9))
    record_transforms(recording, anonymizer, case)
    if guarantee == "catalogue":
        queries = case.factuals
        recording.add("explain", anonymizer.explain(queries, answers=1, **UNCONSTRAINED))
        recording.add("published", anonymizer.published()[:25])
    return recording


def of_bins(policy: Mapping[str, Any], goal: Goal) -> Recording:
    """Record releases in which private numbers leave as their bin."""
    recording = Recording()
    population = loan_population(bins={"pay": [10, 25, 40, 60]})
    anonymizer = fit_counted(population, goal, recording, {"private_values": "bins", **policy})
    case = Case.of(goal)
    record_transforms(recording, anonymizer, case)
    if anonymizer.policy_.guarantee == "catalogue":
        record_answers(recording, anonymizer, case.factuals)
    return recording


def of_schema_rules(guarantee: str, goal: Goal) -> Recording:
    """Record releases where the schema says what cannot change."""
    recording = Recording()
    population = loan_population(immutable=["city"], monotone={"age": "increase"})
    anonymizer = fit_counted(population, goal, recording, {"guarantee": guarantee})
    record_transforms(recording, anonymizer, Case.of(goal, n=14))
    return recording


def of_ledger(guarantee: str, goal: Goal) -> Recording:
    """Record what a ledger lets through: the same again, a larger k, and other people."""
    recording = Recording()
    case = Case.of(goal)
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder) / "ledger.db"
        with Ledger(url, key=LEDGER_KEY, create=True) as ledger:
            first = fit_counted(
                loan_population(), goal, recording, {"guarantee": guarantee}, ledger=ledger
            )
            recording.add("first", transform(first, case.counterfactuals, case.factuals))
            recording.add("again", transform(first, case.counterfactuals, case.factuals))
            policy = {"guarantee": guarantee, "k": 7}
            larger = fit_counted(loan_population(), goal, recording, policy, ledger=ledger)
            recording.add("larger k", transform(larger, case.counterfactuals, case.factuals))
            later = LOANS.tail(180).reset_index(drop=True)
            population = Population.from_frame(later, loan_population().schema, key=POPULATION_KEY)
            refitted = fit_counted(
                population, goal, recording, {"guarantee": guarantee}, ledger=ledger
            )
            recording.add("refitted", transform(refitted, case.counterfactuals, case.factuals))
            recording.add_plain("ledger", ledger_rows(ledger))
    return recording


def ledger_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """Return what is on record, without times and hashes of settings."""
    kept = ("guarantee", "k", "members", "inside", "times")
    return [{name: row[name] for name in kept} for row in ledger.export()]


def of_protect(guarantee: str, goal: Goal, **options: Any) -> Recording:
    """Record what a protected explainer answers."""
    recording = Recording()
    recording.model = CountingModel(goal.predict)
    population = loan_population()
    private = protect(
        NearestUnlikeNeighbour(LOANS, goal.predict, goal.desired, population.schema.features),
        model=recording.model,
        population=population,
        desired=goal.desired,
        method=KAnonymizer(
            policy=PrivacyPolicy(**{**POLICY, "guarantee": guarantee}), **ANONYMIZER
        ),
        **{**PROTECT, **options},
    )
    queries = LOANS[~goal.is_met(LOANS)].head(8)
    recording.add("explain", private.explain(queries))
    recording.add("explain alone", private.explain(queries.head(1)))
    recording.add("constrained", private.explain(queries, **CONSTRAINTS))
    return recording


def of_sealed(guarantee: str, goal: Goal) -> Recording:
    """Record what is released from a sealed file, without a row."""
    recording = Recording()
    case = Case.of(goal)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "population.cfk"
        fit_counted(loan_population(), goal, recording, {"guarantee": guarantee}).seal(path)
        recording.model = CountingModel(goal.predict)
        opened = Population.open(path, key=POPULATION_KEY)
        anonymizer = KAnonymizer(policy=None, **ANONYMIZER)
        anonymizer.fit(opened, recording.model, goal.desired, threshold=None)
        if guarantee == "catalogue":
            record_answers(recording, anonymizer, case.factuals)
        else:
            record_transforms(recording, anonymizer, case)
    return recording


def of_served(guarantee: str, goal: Goal) -> Recording:
    """Record the JSON that a server answers with, without its sentences."""
    recording = Recording()
    recording.model = CountingModel(goal.predict)
    population = loan_population()
    explainer = NearestUnlikeNeighbour(
        LOANS, goal.predict, goal.desired, population.schema.features
    )

    def protected_for(policy: PrivacyPolicy) -> Any:
        return protect(
            explainer,
            model=recording.model,
            population=population,
            desired=goal.desired,
            method=KAnonymizer(policy=policy, **ANONYMIZER),
            **PROTECT,
        )

    policy = PrivacyPolicy(**{**POLICY, "guarantee": guarantee})
    handler = RequestHandler(population, policy, protected_for, 50)
    queries = LOANS[~goal.is_met(LOANS)].head(6)
    queries = queries.assign(debt=queries["debt"].fillna(9.0))
    requests: dict[str, dict[str, Any]] = {"served": {}, "served with a larger k": {"k": 8}}
    for call, params in requests.items():
        records = handler.answer(queries.to_dict("records"), params)
        recording.add_plain(call, [_without_prose(record) for record in records])
    return recording


def _without_prose(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "sentence"}


def of_prototypes(**options: Any) -> Recording:
    """Record differentially private answers whose noise has a seed."""
    recording = Recording(libraries=(*SHARED_LIBRARIES, "opendp"))
    goal = GOALS["label"]
    recording.model = CountingModel(goal.predict)
    schema = Schema.from_frame(
        LOANS,
        quasi_identifiers=["age", "city", "grade"],
        ordinal={"grade": ["low", "mid", "high"]},
        bounds={"age": (18, 70), "pay": (0, 80), "debt": (-10, 40)},
        categories={"city": list("ABCD"), "job": ["clerk", "nurse", "smith"]},
        nullable=["debt"],
        whole=["age", "pay"],
    )
    population = Population.from_frame(LOANS, schema, key=POPULATION_KEY)
    prototypes = DPPrototypes(**{**PROTOTYPES, **options})
    prototypes.fit(population, recording.model, goal.desired)
    queries = LOANS[~goal.is_met(LOANS)].head(10)
    recording.add("explain", prototypes.explain(queries, track=False, groups=None))
    recording.add("explain alone", prototypes.explain(queries.head(1), track=False, groups=None))
    return recording


def of_spark(spark: Any, folder: Path) -> Recording:
    """Record what jobs on Spark release, sorted by the row that each record answers."""
    recording = Recording(libraries=(*SHARED_LIBRARIES, "pyspark"))
    goal = GOALS["label"]
    case = Case.of(goal)
    readable = case.counterfactuals.head(9).reset_index(drop=True)
    counterfactuals = readable.assign(id=range(len(readable)))
    queries = case.factuals.head(9).reset_index(drop=True).assign(id=range(9))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    try:
        for guarantee in ("lookup", "reciprocal"):
            anonymizer = fit_uncounted(goal, {"guarantee": guarantee})
            table = on_spark(spark, counterfactuals, folder)
            released = protect_spark(table, anonymizer, keep=["id"], key=POPULATION_KEY)
            recording.add_plain(f"protect, {guarantee}", rows_of(released))
        table = on_spark(spark, queries, folder)
        answers = explain_spark(
            table,
            fit_uncounted(goal, {}),
            keep=["id"],
            answers=1,
            key=POPULATION_KEY,
            **UNCONSTRAINED,
        )
        recording.add_plain("explain", rows_of(answers))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    return recording


def fit_uncounted(goal: Goal, policy: Mapping[str, Any]) -> KAnonymizer:
    """Fit an anonymizer whose model counts nothing, as calls on workers cannot be counted here."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(**{**POLICY, **policy}), **ANONYMIZER)
    return anonymizer.fit(loan_population(), goal.predict, goal.desired, threshold=None)


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a Spark table as plain values, without sentences, in the order of ids."""
    rows = [_without_prose(row.asDict(recursive=True)) for row in table.collect()]
    return sorted(rows, key=lambda row: row["id"])


# --- the grid -------------------------------------------------------------------------------------

LABEL = GOALS["label"]
GUARANTEES = ("lookup", "reciprocal", "catalogue")


def settings_of_guarantee(guarantee: str) -> dict[str, Callable[[], Recording]]:
    """Return what is recorded for every guarantee, by name."""
    policy = {"guarantee": guarantee}
    settings: dict[str, Callable[[], Recording]] = {
        name: partial(of_policy, policy, goal) for name, goal in GOALS.items()
    }
    return settings | {
        "visits": partial(of_visits, guarantee),
        "schema rules": partial(of_schema_rules, guarantee, LABEL),
        "ledger": partial(of_ledger, guarantee, LABEL),
        "bins": partial(of_bins, policy, LABEL),
        "rare values": partial(of_policy, policy | {"rare_values": "withhold"}, LABEL),
        "alpha": partial(of_policy, policy | {"alpha": 0.4}, LABEL),
        "l": partial(of_policy, policy | {"l": 3}, LABEL),
        "t": partial(of_policy, policy | {"t": 0.12}, LABEL),
        "protected explainer": partial(of_protect, guarantee, LABEL),
        "served": partial(of_served, guarantee, LABEL),
        "sealed": partial(of_sealed, guarantee, LABEL),
    }


SETTINGS: dict[str, Callable[[], Recording]] = {
    f"{guarantee}, {name}": record
    for guarantee in GUARANTEES
    for name, record in settings_of_guarantee(guarantee).items()
}
"""Functions that record, by the name of their setting; `of_spark` needs a session and is apart."""

LOOKUP = {"guarantee": "lookup"}
SETTINGS |= {
    "lookup, grasp": partial(of_policy, LOOKUP, LABEL, method="grasp"),
    "lookup, mondrian, k effective": partial(
        of_policy, LOOKUP, LABEL, method="mondrian", measure_k_effective=True
    ),
    "lookup, objective ncp": partial(of_policy, LOOKUP | {"objective": "ncp"}, LABEL),
    "lookup, floor and ceiling": partial(
        of_policy, LOOKUP | {"min_pureness": 0.9, "max_ncp": 0.06}, LABEL
    ),
    "catalogue, not moved": partial(of_policy, {"move_towards_query": False}, LABEL),
    "catalogue, shared": partial(of_policy, {"private_values": "shared"}, LABEL),
    "catalogue, shared, opposite": partial(
        of_policy, {"private_values": "shared"}, GOALS["opposite"]
    ),
    "catalogue, few changes": partial(of_few_changes, {}),
    "catalogue, few changes, shared": partial(of_few_changes, {"private_values": "shared"}),
    "catalogue, few changes, not moved": partial(of_few_changes, {"move_towards_query": False}),
    "catalogue, few changes, thorough": partial(of_few_changes, {}, effort="thorough"),
    "catalogue, margin": partial(of_margin, "auto"),
    "catalogue, query": partial(of_protect, "catalogue", LABEL, start="query"),
    "prototypes, pure": of_prototypes,
    "prototypes, approximate": partial(of_prototypes, delta=1e-7),
    "prototypes, few": partial(of_prototypes, serve="prototypes"),
    "prototypes, private model": partial(
        of_prototypes, model_access="private", move_towards_query=False
    ),
}
