"""Three small worlds that tests share: people, a model that judges them, and what is declared.

The fixtures `applicants`, `patients` and `residents` return one of them for the whole session. What
is fitted on it is fitted once, so a test never changes a table, a model or an anonymizer of a world.
A test in which the numbers matter has a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_plugin import (
    Attribute,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    ProtectedExplainer,
    Schema,
    protect,
)


@dataclass(frozen=True, repr=False)
class World:
    """The data holder's table, model and declarations, and what is fitted on them.

    Attributes
    ----------
    table : DataFrame
        The training table: the only people who could be recognised.
    strangers : DataFrame
        Features of other people, who ask.
    model : object with `predict`
    desired : the label that people want
    roles : settings of `Schema.from_frame`
    k : int
    """

    table: pd.DataFrame
    strangers: pd.DataFrame
    model: Any
    desired: Any
    roles: Mapping[str, Any]
    k: int

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_frame(self.table, **self.roles)

    @cached_property
    def population(self) -> Population:
        return Population.from_frame(self.table, self.schema)

    @cached_property
    def refused(self) -> pd.DataFrame:
        """The first eight strangers whom the model refuses."""
        return self._strangers_with(outcome=False)

    @cached_property
    def accepted(self) -> pd.DataFrame:
        """The first eight strangers whom the model accepts."""
        return self._strangers_with(outcome=True)

    @cached_property
    def native(self) -> pd.DataFrame:
        """The features of the first eight people of the table whom the model accepts."""
        features = self.table[list(self.strangers)]
        return features[self.model.predict(features) == self.desired].head(8)

    @cached_property
    def anonymizer(self) -> KAnonymizer:
        """An anonymizer with the defaults, which answers from a catalogue."""
        return self.fit()

    @cached_property
    def lookup(self) -> KAnonymizer:
        """An anonymizer that generalises counterfactuals of an explainer."""
        return self.fit(guarantee="lookup")

    @cached_property
    def private(self) -> ProtectedExplainer:
        """What answers from the catalogue, without an explainer."""
        return self.protect(None)

    @cached_property
    def answers(self) -> Explanations:
        """The answers of the catalogue to the refused strangers."""
        return self.anonymizer.explain(self.refused)

    def fit(self, **settings: Any) -> KAnonymizer:
        """Fit another anonymizer: settings are of `fit`, of the anonymizer, or of its policy."""
        options = {"population": self.population, "model": self.model, "desired": self.desired}
        of_fit = {name: settings.pop(name, option) for name, option in options.items()}
        of_anonymizer = {
            name: settings.pop(name)
            for name in ("method", "plugins", "random_state")
            if name in settings
        }
        policy = PrivacyPolicy(**{"k": self.k, **settings})
        return KAnonymizer(policy=policy, **of_anonymizer).fit(**of_fit)

    def protect(self, explainer: Any, **settings: Any) -> ProtectedExplainer:
        """Protect an explainer; settings replace what is right."""
        options = {"model": self.model, "population": self.population, "desired": self.desired}
        if "policy" not in settings:
            options["k"] = self.k
        return protect(explainer, **options | settings)

    def declare(self, **declared: Any) -> Population:
        """Return the people of the table with further declarations."""
        schema = Schema.from_frame(self.table, **{**self.roles, **declared})
        return Population.from_frame(self.table, schema)

    def _strangers_with(self, *, outcome: bool) -> pd.DataFrame:
        has_outcome = self.model.predict(self.strangers) == self.desired
        return self.strangers[has_outcome == outcome].head(8).reset_index(drop=True)


# --- applicants: nothing is missing, and the model has probabilities --------------------------------

LEVELS = ["school", "college", "university"]


def _applicants(n: int, seed: int) -> pd.DataFrame:
    """Return made-up people whose incomes all differ."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "town": random.choice(["Antwerp", "Ghent", "Namur"], n),
            "education": random.choice(LEVELS, n),
            "job": random.choice(["clerk", "nurse", "smith"], n),
            "income": random.normal(40_000, 6_000, n).round(2),
            "debt": random.integers(0, 40, n) * 500,
        }
    )


def granted(people: pd.DataFrame) -> pd.Series:
    """Return who got a loan, 1 or 0."""
    points = people["income"] - people["debt"] + 200 * people["age"]
    points += 4_000 * people["education"].map(LEVELS.index)
    points += 6_000 * (people["job"] == "nurse")
    return (points > points.median()).astype(int)


def applicants() -> World:
    """Return people who apply for a loan, and the bank's scikit-learn pipeline."""
    table = _applicants(300, seed=0)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["town", "education", "job"]),
        (StandardScaler(), ["age", "income", "debt"]),
    )
    return World(
        table=table,
        strangers=_applicants(60, seed=1),
        model=make_pipeline(encoder, LogisticRegression()).fit(table, granted(table)),
        desired=1,
        roles={
            "quasi_identifiers": ["age", "town", "education"],
            "ordinal": {"education": LEVELS},
            "immutable": ["town"],
            "monotone": {"age": "increase"},
            "titles": {"income": "an income", "debt": "a debt"},
            "units": {"income": "EUR", "debt": "EUR"},
            "outcomes": {1: "the model would grant the loan"},
        },
        k=10,
    )


# --- patients: several rows per person, dates, flags, and a hierarchy --------------------------------

REGIONS = {
    "Aalst": ["Flanders"],
    "Ghent": ["Flanders"],
    "Namur": ["Wallonia"],
    "Liege": ["Wallonia"],
}


def _visits(n: int, n_people: int, seed: int) -> pd.DataFrame:
    """Return visits of people, some of whose dates of birth are missing."""
    random = np.random.default_rng(seed)
    days_of_birth = pd.to_timedelta(random.integers(0, 23_000, n_people), unit="D")
    births = pd.Series(pd.Timestamp("1940-01-01") + days_of_birth)
    births = births.mask(random.random(n_people) < 0.05)
    towns = random.choice([*REGIONS], n_people).astype(object)
    person = random.integers(0, n_people, n)
    days = pd.to_timedelta(random.integers(0, 60, n), unit="D")
    return pd.DataFrame(
        {
            "person": person,
            "born": births[person].to_numpy(),
            "town": towns[person],
            "insured": random.random(n) < 0.7,
            "day": pd.Timestamp("2024-01-01") + days,
            "bill": random.gamma(3.0, 40.0, n).round(2),
            "ward": random.choice(["eye", "heart", "skin"], n).astype(object),
        }
    )


class Hospital:
    """Decides on a further visit."""

    classes_ = np.array([0, 1])

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        age = (pd.Timestamp("2024-01-01") - rows["born"]).dt.days / 365
        score = age.fillna(50) / 20 + rows["bill"] / 60 + 2 * (rows["ward"] == "heart")
        return (score - (rows["day"] > pd.Timestamp("2024-02-01")) > 4.5).to_numpy().astype(int)


def patients() -> World:
    """Return visits of up to 120 people to a hospital, and the rule for a further visit."""
    return World(
        table=_visits(240, 120, seed=5),
        strangers=_visits(60, 60, seed=6).drop(columns="person"),
        model=Hospital(),
        desired=1,
        roles={
            "quasi_identifiers": ["born", "town", "insured"],
            "columns": {"town": Attribute(hierarchy=REGIONS)},
            "subject": "person",
        },
        k=5,
    )


# --- residents: an identifier, a hierarchy, levels, dates, and gaps -----------------------------------

CANARY = "secret-7f3a"
ZIPS = {"A1": ["A"], "A2": ["A"], "B1": ["B"], "B2": ["B"]}


def _residents(n: int, seed: int) -> pd.DataFrame:
    """Return people with a column of each kind; the name of each is a canary."""
    random = np.random.default_rng(seed)
    days = pd.to_timedelta(random.integers(0, 300, n), unit="D")
    table = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(n)],
            "age": random.integers(18, 60, n),
            "zip": random.choice([*ZIPS], n),
            "school": random.choice(["low", "mid", "high"], n),
            "salary": random.integers(20, 120, n),
            "job": random.choice(["a", "b", "c"], n),
            "since": pd.Timestamp("2020-01-01") + days,
        }
    )
    table.loc[3:9, "job"] = None
    return table


class Bank:
    """Grants a loan if the score reaches a limit; another limit is another model."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        score = rows["salary"] + rows["age"] + 9 * (rows["school"] == "high")
        return np.where(score >= self.limit, "yes", "no")


def residents() -> World:
    """Return residents of a town, and the rule of a bank."""
    return World(
        table=_residents(240, seed=0),
        strangers=_residents(60, seed=1).drop(columns="name"),
        model=Bank(100),
        desired="yes",
        roles={
            "quasi_identifiers": ["age", "zip", "school"],
            "identifiers": ["name"],
            "sensitive": ["job"],
            "ordinal": {"school": ["low", "mid", "high"]},
            "columns": {"zip": Attribute(hierarchy=ZIPS)},
        },
        k=5,
    )
