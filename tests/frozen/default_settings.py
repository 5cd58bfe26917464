"""The settings whose explanations are recorded: the product's defaults, plus one thing each.

No setting passes an option that it is not about, apart from k = 5, because the tables are small.
Therefore a changed default changes records, and `regenerate_defaults.py` shows how.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import mlflow
import numpy as np
import pandas as pd

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Attribute,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    log_protected_model,
    protect,
)
from frozen_records import CountingModel, Recording

RECORDS = Path(__file__).parent / "default_records"

POPULATION_KEY = b"the population key of the records"
N_QUERIES = 8


# --- tables ---------------------------------------------------------------------------------------


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
    """Return 240 visits of up to 120 people, with dates, flags, missing dates, and a hierarchy."""
    random = np.random.default_rng(5)
    n = 240
    n_people = 120
    days_of_birth = pd.to_timedelta(random.integers(0, 23_000, n_people), unit="D")
    births = pd.Series(pd.Timestamp("1940-01-01") + days_of_birth)
    births = births.mask(random.random(n_people) < 0.05)
    towns = random.choice(["Aalst", "Ghent", "Namur", "Liege"], n_people).astype(object)
    person = random.integers(0, n_people, n)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 60, n), unit="D")
    return pd.DataFrame(
        {
            "person": person,
            "born": births[person].to_numpy(),
            "town": towns[person],
            "insured": random.random(n) < 0.7,
            "day": days,
            "bill": random.gamma(3.0, 40.0, n).round(2),
            "ward": random.choice(["eye", "heart", "skin"], n).astype(object),
        }
    )


LOANS = loan_table()
VISITS = visits_table()
PATIENTS = VISITS.drop_duplicates("person").drop(columns="person").reset_index(drop=True)
"""The first visit of every person."""


def loan_population(**declarations: Any) -> Population:
    schema = Schema.from_frame(
        LOANS,
        quasi_identifiers=["age", "city", "grade"],
        ordinal={"grade": ["low", "mid", "high"]},
        sensitive=["job"],
        **declarations,
    )
    return Population.from_frame(LOANS, schema, key=POPULATION_KEY)


def visit_population(table: pd.DataFrame, **declarations: Any) -> Population:
    regions = {"Aalst": ["Flanders"], "Ghent": ["Flanders"]}
    regions |= {"Namur": ["Wallonia"], "Liege": ["Wallonia"]}
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["born", "town", "insured"],
        columns={"town": Attribute(hierarchy=regions)},
        **declarations,
    )
    return Population.from_frame(table, schema, key=POPULATION_KEY)


# --- models ---------------------------------------------------------------------------------------


class CountingClassifier(CountingModel):
    """A classifier that counts the rows it is given; its label is the most probable class.

    `probabilities` maps rows to an array of shape (n_rows, n_classes).
    """

    def __init__(
        self, classes: Sequence[Any], probabilities: Callable[[pd.DataFrame], Any]
    ) -> None:
        super().__init__(probabilities)
        self.classes_ = np.array(classes)

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        return super().predict(rows)

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]


def loan_score(rows: pd.DataFrame) -> Any:
    bonus = rows["city"].map({"A": 0, "B": 6, "C": -6, "D": 3}).fillna(0)
    score = rows["pay"] - rows["debt"].fillna(12) + rows["age"] / 4 + bonus
    return score.to_numpy(dtype=float)


def loan_probabilities(rows: pd.DataFrame) -> Any:
    return _of_two_classes(loan_score(rows) / 8 - 4.75)


def loan_size_probabilities(rows: pd.DataFrame) -> Any:
    """Return the probabilities of no loan, a small loan and a large loan."""
    centres = np.array([20.0, 36.0, 52.0])
    closeness = -np.abs(loan_score(rows)[:, np.newaxis] - centres) / 8
    weights = np.exp(closeness)
    return weights / weights.sum(axis=1, keepdims=True)


def visit_probabilities(rows: pd.DataFrame) -> Any:
    """Return the probabilities of no follow-up and of a follow-up."""
    age = (pd.Timestamp("2024-01-01") - rows["born"]).dt.days / 365
    is_heart = (rows["ward"] == "heart").astype(float)
    is_late = (rows["day"] > pd.Timestamp("2024-02-01")).astype(float)
    score = age.fillna(50) / 20 + rows["bill"] / 60 + 2 * is_heart - is_late - 4.5
    return _of_two_classes(score.to_numpy(dtype=float))


def _of_two_classes(score: Any) -> Any:
    probability = 1 / (1 + np.exp(-score))
    return np.column_stack([1 - probability, probability])


@dataclass(frozen=True)
class Goal:
    """A model, the desired outcome, and a function from labels to a mask of the desired ones."""

    make_model: Callable[[], CountingModel]
    desired: Any
    is_desired: Callable[[Any], Any]

    def refused(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the first people of a table who do not have the outcome."""
        is_met = self.is_desired(self.make_model().predict(table))
        return table[~is_met].head(N_QUERIES)

    def accepted(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the first people of a table who have the outcome."""
        is_met = self.is_desired(self.make_model().predict(table))
        return table[is_met].head(N_QUERIES)


LOAN_MODEL = partial(CountingClassifier, ["no", "yes"], loan_probabilities)
LOAN_SIZE_MODEL = partial(CountingClassifier, ["none", "small", "large"], loan_size_probabilities)
VISIT_MODEL = partial(CountingClassifier, [0, 1], visit_probabilities)

LABEL = Goal(LOAN_MODEL, "yes", lambda labels: labels == "yes")
SET = Goal(LOAN_SIZE_MODEL, {"small", "large"}, lambda labels: labels != "none")
RANGE = Goal(
    partial(CountingModel, loan_score), (40.0, 60.0), lambda scores: (scores >= 40) & (scores <= 60)
)
# Any label is a refusal here, so that the queries of "opposite" have all three.
OPPOSITE = Goal(LOAN_SIZE_MODEL, "opposite", lambda labels: np.zeros(len(labels), dtype=bool))
FOLLOW_UP = Goal(VISIT_MODEL, 1, lambda labels: labels == 1)


# --- recordings -----------------------------------------------------------------------------------


def fit_counted(
    population: Population,
    goal: Goal,
    recording: Recording,
    *,
    policy: Mapping[str, Any] | None = None,
    **options: Any,
) -> KAnonymizer:
    """Fit an anonymizer; the recording counts the calls of its model."""
    recording.model = goal.make_model()
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, **(policy or {})), **options)
    return anonymizer.fit(population, recording.model, goal.desired)


def of_goal(goal: Goal, declarations: Mapping[str, Any], call: Mapping[str, Any]) -> Recording:
    """Record answers about loans; `declarations` are of the schema, `call` is of `explain`."""
    recording = Recording()
    anonymizer = fit_counted(loan_population(**declarations), goal, recording)
    recording.add("explain", anonymizer.explain(goal.refused(LOANS), **call))
    return recording


def of_missing_values() -> Recording:
    """Record answers to queries with missing and unknown values."""
    recording = Recording()
    anonymizer = fit_counted(loan_population(), LABEL, recording)
    without_debt = LABEL.refused(LOANS[LOANS["debt"].isna()]).head(3)
    queries = pd.concat([without_debt, LABEL.refused(LOANS)]).head(N_QUERIES).astype(object)
    queries = queries.reset_index(drop=True)
    for row, column in enumerate(["age", "grade", "job"], start=3):
        queries.loc[row, column] = None
    queries.loc[6, "city"] = "Z"
    recording.add("explain", anonymizer.explain(queries))
    return recording


def of_visits(table: pd.DataFrame, declarations: Mapping[str, Any]) -> Recording:
    """Record answers from visits, and the first entries of the catalogue."""
    recording = Recording()
    anonymizer = fit_counted(visit_population(table, **declarations), FOLLOW_UP, recording)
    recording.add("explain", anonymizer.explain(FOLLOW_UP.refused(table)))
    _add_catalogue(recording, anonymizer, n_entries=12)
    return recording


def of_catalogue() -> Recording:
    """Record the published catalogue."""
    recording = Recording()
    anonymizer = fit_counted(loan_population(), LABEL, recording)
    _add_catalogue(recording, anonymizer, n_entries=40)
    return recording


def _add_catalogue(recording: Recording, anonymizer: KAnonymizer, *, n_entries: int) -> None:
    """Add the first entries of the published catalogue, and the number of all."""
    entries = anonymizer.published()
    recording.add("published", entries[:n_entries])
    recording.add_plain("all published", [{"entries": len(entries)}])


def of_lookup(method: str) -> Recording:
    """Record generalised counterfactuals: rows of the table, near rows, and a made-up row."""
    recording = Recording()
    policy = {"guarantee": "lookup"}
    anonymizer = fit_counted(loan_population(), LABEL, recording, policy=policy, method=method)
    counterfactuals = LABEL.accepted(LOANS).reset_index(drop=True)
    counterfactuals.loc[[4, 5], "debt"] += 0.1  # near-native
    made_up = {"age": 18, "city": "B", "grade": "high", "pay": 59, "debt": 0.0, "job": "smith"}
    counterfactuals.loc[6] = made_up
    factuals = LABEL.refused(LOANS)
    recording.add("transform", anonymizer.transform(counterfactuals, factuals))
    return recording


def of_protected_explainer() -> Recording:
    """Record answers of an explainer that returns training rows, to people with any outcome."""
    recording = Recording()
    recording.model = LABEL.make_model()
    explainer = NearestUnlikeNeighbour(LOANS, LABEL.make_model())
    private = protect(
        explainer,
        model=recording.model,
        population=loan_population(),
        policy=PrivacyPolicy(k=5),
    )
    recording.add("explain", private.explain(LOANS.head(N_QUERIES)))
    return recording


def of_served_model() -> Recording:
    """Record the JSON of a model that was logged to MLflow, without its sentences."""
    recording = Recording()
    with _temporary_mlflow_store():
        with warnings.catch_warnings(action="ignore"):  # this module is not logged with the model
            anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
            anonymizer.fit(loan_population(), LABEL.make_model(), LABEL.desired)
            logged = log_protected_model(anonymizer, pip_requirements=[])
        served = mlflow.pyfunc.load_model(logged.model_uri)
        queries = LABEL.refused(LOANS).dropna().reset_index(drop=True)
        answers = served.predict(queries)["explanations"]
    for answer in answers:
        del answer["sentence"]
    recording.add_plain("served", answers)
    return recording


@contextmanager
def _temporary_mlflow_store() -> Iterator[None]:
    """Log to a store that is deleted afterwards; the server has the key of the population."""
    uri = mlflow.get_tracking_uri()
    environment = {
        "CFK_KEY": POPULATION_KEY.decode(),
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, environment):
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.create_experiment("records", artifact_location=folder)
        mlflow.set_experiment("records")
        try:
            with mlflow.start_run():
                yield
        finally:
            mlflow.set_tracking_uri(uri)


def of_prototypes() -> Recording:
    """Record differentially private answers whose noise has a seed."""
    recording = Recording()
    recording.model = LABEL.make_model()
    population = loan_population(
        columns={
            "age": Attribute(bounds=(18, 90), whole=True),
            "pay": Attribute(bounds=(0, 100), whole=True),
            "debt": Attribute(bounds=(-10, 40)),
            "city": Attribute(categories=list("ABCD")),
            "job": Attribute(categories=["clerk", "nurse", "smith"]),
        },
        nullable=["debt"],
    )
    prototypes = DPPrototypes(random_state=7)
    with warnings.catch_warnings(action="ignore"):  # seeded noise, and a private model
        prototypes.fit(population, recording.model, LABEL.desired)
    recording.add("explain", prototypes.explain(LABEL.refused(LOANS)))
    return recording


CONSTRAINTS: Mapping[str, Any] = {
    "features_to_vary": ["age", "grade", "pay", "debt"],
    "permitted_range": {"pay": [10, 45]},
}
RULES: Mapping[str, Any] = {"immutable": ["city"], "monotone": {"age": "increase"}}

SETTINGS: Mapping[str, Callable[[], Recording]] = {
    "label": partial(of_goal, LABEL, {}, {}),
    "set": partial(of_goal, SET, {}, {}),
    "range": partial(of_goal, RANGE, {}, {}),
    "opposite": partial(of_goal, OPPOSITE, {}, {}),
    "constraints": partial(of_goal, LABEL, {}, CONSTRAINTS),
    "max changes": partial(of_goal, LABEL, {}, {"max_changes": 1}),
    "schema rules": partial(of_goal, LABEL, RULES, {}),
    "several answers": partial(of_goal, LABEL, {}, {"answers": 3}),
    "missing values": of_missing_values,
    "dates": partial(of_visits, PATIENTS, {}),
    "subjects": partial(of_visits, VISITS, {"subject": "person"}),
    "published catalogue": of_catalogue,
    "protected explainer": of_protected_explainer,
    "served": of_served_model,
    "lookup, exact": partial(of_lookup, "exact"),
    "lookup, grasp": partial(of_lookup, "grasp"),
    "lookup, mondrian": partial(of_lookup, "mondrian"),
    "prototypes": of_prototypes,
}
"""Functions that record, by the name of their setting."""
