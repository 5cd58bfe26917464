"""How many answers last: the share that the model still accepts after it was trained again.

Run it from the repository's root: ``python tests/benchmarks/survival.py --data FOLDER [--tables
heart,german] [--models forest,boosting,logistic] [--methods nearest,margin-0,default,later]
[--people 100] [--json FILE]``. The queries are the first refused test rows of each table.

Every model is trained again on 16 bootstraps of its training rows. Eight of these models are given
to ``later=`` and choose answers. The other eight choose nothing and judge the answers of every
method. An answer is judged at the point that the person is told: the point of it that is nearest to
the query. *Survival* is the share of pairs of an answer and a judge where the judge gives the
desired outcome, *all eight* the share of answers that all judges accept. Distance is HEOM summed
over all features, beside the nearest unlike training row's for the same queries; changes are
features that differ. Answers that are withheld count as unanswered and in nothing else.

With ``--json``, every method's figures are kept in that file as soon as they are known. A method
that the file holds for a table and a model is not run again, except with ``--again 1``.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from answers import RAW, released, unprotected
from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.metrics.heom import Heom
from printing import DATA, arguments, heading, line
from tables import LEAVES, TABLES, Case, case_of, forest, read, split

N_BOOTSTRAPS = 8  # models that choose, and as many that judge
CHOOSING = range(1, 1 + N_BOOTSTRAPS)  # seeds
JUDGING = range(101, 101 + N_BOOTSTRAPS)
MANY_CHANGES = 4  # Regulation B, comment 9(b)(2)-1: more than four reasons are not likely to help
KEY = bytes(32)  # of populations, so that groups are the same in every run

MODELS = ("forest", "boosting", "logistic")
# Trains a model on rows and labels with a seed.
Training = Callable[[pd.DataFrame, pd.Series, int], Pipeline]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A table with a model, with models that choose answers, and with models that judge them."""

    case: Case
    choosing: list[Any]
    judging: list[Any]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The points that people are told.

    Attributes
    ----------
    queries : list of int
        Positions of the queries that are answered.
    points : DataFrame
        The nearest point of each answer, in the same order.
    margin : float or None
        The margin that the answers keep; None for other methods.
    """

    queries: list[int]
    points: pd.DataFrame
    margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a method gave on a table with a model; shares are in [0, 1]."""

    people: int  # who asked
    answered: float
    true: float  # the model that was asked gives the outcome at the point that is told
    survival: float
    survival_all: float  # all judges accept
    distance: float  # beside the nearest unlike row's
    changes_mean: float
    changes_median: float
    many_changes: float  # share of answers with more than four
    margin: float | None
    seconds: float  # to fit, and to answer everybody


def boosting(train: pd.DataFrame, labels: pd.Series, seed: int) -> Pipeline:
    """Fit gradient boosting of 100 trees behind a one-hot encoding of text."""
    text, _ = columns_of(train)
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = ColumnTransformer([("text", one_hot, text)], remainder="passthrough")
    trees = HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=seed)
    return make_pipeline(encode, trees).fit(train, labels)


def logistic(train: pd.DataFrame, labels: pd.Series, seed: int) -> Pipeline:
    """Fit logistic regression behind a one-hot encoding of text and scaled numbers.

    The solver draws no random numbers, so the seed changes nothing.
    """
    text, numbers = columns_of(train)
    scale = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    encode = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore"), text), ("numbers", scale, numbers)]
    )
    return make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(train, labels)


def columns_of(train: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the names of the columns of text, and of those of numbers."""
    numbers = [name for name in train if pd.api.types.is_numeric_dtype(train[name])]
    return [name for name in train if name not in numbers], numbers


def training_of(kind: str, table: str) -> Training:
    """Return how a kind of model is trained for a table."""

    def benchmark_forest(train: pd.DataFrame, labels: pd.Series, seed: int) -> Pipeline:
        return forest(train, labels, seed, max_leaf_nodes=LEAVES[table])

    return {"forest": benchmark_forest, "boosting": boosting, "logistic": logistic}[kind]


def bootstrapped(
    train: Training, rows: pd.DataFrame, labels: pd.Series, seeds: Iterable[int]
) -> list[Pipeline]:
    """Train a model per seed, each on as many rows as there are, drawn with replacement."""
    models = []
    for seed in seeds:
        drawn = np.random.default_rng(seed).integers(len(rows), size=len(rows))
        models.append(train(rows.iloc[drawn], labels.iloc[drawn], seed))
    return models


def trial(table: str, kind: str, data: Path, people: int) -> Trial:
    """Train a kind of model on a table, once on the rows and 16 times on bootstraps of them."""
    frame, about = read(table, data)
    train, test = split(frame, 0.6, 0)
    rows, labels = train[about["features"]], train[about["target"]]
    fit = training_of(kind, table)
    model = fit(rows, labels, 0)
    return Trial(
        case=case_of(table, about, train, test, model, people, KEY),
        choosing=bootstrapped(fit, rows, labels, CHOOSING),
        judging=bootstrapped(fit, rows, labels, JUDGING),
    )


def from_library(name: str) -> Callable[[Trial], Answers]:
    """Return an unprotected method of `answers.py`."""

    def ask(one: Trial) -> Answers:
        queries, points, _ = unprotected(RAW[name](one.case))
        return Answers(queries=queries, points=points)

    return ask


def from_catalogue(one: Trial, policy: PrivacyPolicy, **fitting: Any) -> Answers:
    """Answer from a catalogue."""
    anonymizer = KAnonymizer(policy=policy)
    anonymizer.fit(one.case.population, one.case.model, one.case.desired, **fitting)
    queries, points, explanations = released(one.case, anonymizer.explain(one.case.queries))
    assert explanations is not None
    # every answer of a catalogue has the same margin
    margins = {entry.certificate.margin for entry in explanations.generalized}
    return Answers(queries=queries, points=points, margin=min(margins, default=None))


METHODS: dict[str, Callable[[Trial], Answers]] = {
    "nearest": from_library("nearest"),
    "NICE": from_library("NICE-sparsity"),
    "DiCE-random": from_library("DiCE-random"),
    "DiCE-genetic": from_library("DiCE-genetic"),
    "margin-0": lambda one: from_catalogue(one, PrivacyPolicy(margin=0)),
    "default": lambda one: from_catalogue(one, PrivacyPolicy()),
    "later": lambda one: from_catalogue(one, PrivacyPolicy(), later=one.choosing),
}


def measure(one: Trial, method: str) -> Figures:
    """Ask a method for an answer of every query, and measure the answers."""
    case = one.case
    features = list(case.population.schema.features)
    started = time.process_time()
    answers = METHODS[method](one)
    seconds = time.process_time() - started
    points = answers.points[features]
    accepted = acceptances(points, one.judging, case.desired)
    gaps, nearest_gaps = distances(case, answers.queries, points)
    changes = (gaps > 1e-12).sum(axis=1)
    return Figures(
        people=len(case.queries),
        answered=len(points) / len(case.queries),
        true=float(acceptances(points, [case.model], case.desired).mean()),
        survival=float(accepted.mean()),
        survival_all=float(accepted.all(axis=0).mean()),
        distance=float(gaps.sum() / nearest_gaps.sum()),
        changes_mean=float(changes.mean()),
        changes_median=float(np.median(changes)),
        many_changes=float((changes > MANY_CHANGES).mean()),
        margin=answers.margin,
        seconds=seconds,
    )


def acceptances(points: pd.DataFrame, models: list[Any], desired: Any) -> np.ndarray:
    """Return whether each model gives each point the desired outcome: (n_models, n_points)."""
    return np.array([model.predict(points) == desired for model in models])


def distances(
    case: Case, queries: list[int], points: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the points and the nearest unlike rows are from their queries, by feature.

    Both arrays have the shape (n_points, n_features).
    """
    features = list(points)
    heom = Heom.of(case.population)
    asked = case.queries[features].iloc[queries].reset_index(drop=True)
    nearest = case.counterfactuals[features].iloc[queries].reset_index(drop=True)
    return heom.parts(asked, points), heom.parts(asked, nearest)


HEAD = ("table", "model", "method", "answered %", "true %", "survival %", "all eight %")
HEAD += ("distance", "changes", "median", "above four %", "margin", "s")


def row_of(name: str, kind: str, method: str, figures: Figures) -> str:
    """Return a line of the printed table."""
    margin = "–" if figures.margin is None else f"{figures.margin:.2f}"
    shares = (figures.answered, figures.true, figures.survival, figures.survival_all)
    return line(
        name,
        kind,
        method,
        *(f"{100 * share:.1f}" for share in shares),
        f"{figures.distance:.2f}",
        f"{figures.changes_mean:.2f}",
        f"{figures.changes_median:g}",
        f"{100 * figures.many_changes:.1f}",
        margin,
        f"{figures.seconds:.1f}",
    )


class Checkpoints:
    """Figures that a JSON file holds, by table, model and method.

    The file is read again before it is written, so that two runs may share it.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)

    def has(self, name: str) -> bool:
        return name in self._read()

    def add(self, name: str, figures: Figures) -> None:
        if self._path is None:
            return
        every = self._read() | {name: rounded(figures)}
        lines = (f"{json.dumps(one)}: {json.dumps(every[one])}" for one in sorted(every))
        self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def _read(self) -> dict[str, Any]:
        if self._path is None or not self._path.exists():
            return {}
        kept: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        return kept


def rounded(figures: Figures) -> dict[str, float | None]:
    """Return figures with four digits after the point."""
    return {
        name: None if value is None else round(value, 4) for name, value in asdict(figures).items()
    }


def main() -> None:
    options = arguments(
        __doc__,
        data=DATA,
        tables=TABLES,
        models=MODELS,
        methods=[*METHODS],
        people=100,
        json=None,
        again=0,
    )
    warnings.simplefilter("ignore")
    kept = Checkpoints(options.json)
    print(heading(*HEAD), flush=True)
    for table in options.tables:
        for kind in options.models:
            methods = [
                method
                for method in options.methods
                if options.again or not kept.has(f"{table} {kind} {method}")
            ]
            if not methods:
                continue
            one = trial(table, kind, options.data, options.people)
            for method in methods:
                figures = measure(one, method)
                kept.add(f"{table} {kind} {method}", figures)
                print(row_of(table, kind, method, figures), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
