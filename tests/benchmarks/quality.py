"""The quality table: how good the answers of the default settings are, and what they cost.

Run it from the root of the repository::

    python tests/benchmarks/quality.py --data ../shared/data --output quality-now.csv
    python tests/benchmarks/quality.py --compare quality-before.csv quality-now.csv

The first command writes one row per table and split. The second prints every figure before and now
and exits with 1 if a figure is worse than `FIGURES` allows. Without a second file, `--compare`
measures first.

A split trains a forest on 60 % of the rows, at most 6,000, and asks for answers to the first 60 of
1,000 test rows that the forest refuses. Tables with fewer refused test rows ask for fewer. All six
tables with three splits take about 10 minutes on one core.

Every answer is judged at the point that the person is advised: the person's own value if it is
inside the region, and otherwise the nearest value of the region; private values as released.

answered, true
    Share of queries with an answer; share of answers for which the model gives the outcome.
distance_to_row, distance_to_nice
    Mean distance of the answers divided by the mean distance, for the same queries, of the nearest
    training row with the outcome, and of NICE's answers. The distance is HEOM, summed over features.
changes_mean, changes_above_four
    Changed features per answer; share of answers that change more than four.
asked_needed_*
    For each changed number: the change divided by the least change of this number at which the
    model still accepts the point, to a 200th of the change. It is infinite if the change can be
    taken back altogether. The model accepts a point with the margin of the answer's certificate or,
    in `*_no_margin`, if it gives the outcome at all. An answer with a smaller lead than the margin
    is judged by its own lead.
needless_margin, needless
    Share of answers with a change, of a number or a category, that can be taken back alone. The
    model accepts the point with the margin; without it.
ncp, pureness, survival
    Means of the recounts; mean share of answers that forests accept that were trained on four
    bootstraps of the training rows.
entries
    Number of published entries.
fit_seconds, fit_seconds_per_model_fit
    CPU seconds to make the population and to fit, the least of two; the same divided by the CPU
    seconds to fit the forest.
ms_batch, ms_alone
    CPU milliseconds per query in one batch, and in calls with a single query, the model included.
    Everything is compiled before, and no query is repeated, so that it does not matter whether the
    model's answers are remembered. What the first call prepares for all later ones is not included.
model_calls_batch, model_rows_per_answer, model_calls_alone
    Calls of the model by the batch, rows that these calls contain per query, and calls by a single
    query.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from nice import NICE
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from threadpoolctl import threadpool_limits

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from public_tables import LEAVES, TABLES, forest, read, schema_of, split

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder of the oracle

from oracle import advised_points

K = 10
POPULATION_KEY = bytes(32)  # groups depend on it
MOST_TRAINING_ROWS = 6000
MOST_TEST_ROWS = 1000
MOST_QUERIES = 60
N_ALONE = 12  # calls with a single query
RETRAINING_SEEDS = range(101, 105)
MANY_CHANGES = 4
N_STEPS = 200  # between a person's own number and the number of the answer
TOLERANCE = 1e-9  # of leads and distances
NEGLIGIBLE = 0.01  # two figures up to this are equal; of 180 answers it is one or two

Floats = NDArray[np.float64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Figure:
    """How a figure is judged.

    Attributes
    ----------
    better : {"higher", "lower", "neither"}
        Which value is better; a figure for which neither is better is not judged.
    on_table, on_average : float
        By which share the figure may get worse on a table, and on average over the tables.
    """

    better: Literal["higher", "lower", "neither"]
    on_table: float = 0.10
    on_average: float = 0.05


HIGHER = Figure("higher")
LOWER = Figure("lower")
LOWER_TIME = Figure("lower", on_table=0.30, on_average=0.30)
INFORMATION = Figure("neither")

FIGURES = {
    "answered": HIGHER,
    "true": HIGHER,
    "distance_to_row": LOWER,
    "distance_to_nice": LOWER,
    "changes_mean": LOWER,
    "changes_above_four": LOWER,
    "asked_needed_median": LOWER,
    "asked_needed_p90": LOWER,
    "asked_needed_median_no_margin": LOWER,
    "asked_needed_p90_no_margin": LOWER,
    "needless_margin": LOWER,
    "needless": LOWER,
    "ncp": LOWER,
    "pureness": HIGHER,
    "survival": HIGHER,
    "entries": INFORMATION,
    "fit_seconds_per_model_fit": LOWER_TIME,
    "fit_seconds": LOWER_TIME,
    "ms_batch": LOWER_TIME,
    "ms_alone": LOWER_TIME,
    "model_calls_batch": LOWER,
    "model_rows_per_answer": LOWER,
    "model_calls_alone": LOWER,
}


# --- What is measured: a table, a forest and refused people


@dataclass(frozen=True)
class Case:
    """One split of a table.

    Attributes
    ----------
    train, labels : DataFrame, Series
        Features and outcomes of the training rows.
    model : Pipeline
        The forest, fitted in `model_seconds` CPU seconds.
    queries : DataFrame
        Test rows that the forest refuses.
    refused_row : DataFrame
        One refused training row, for calls that are not measured.
    """

    table: str
    train: pd.DataFrame
    labels: pd.Series
    schema: Schema
    desired: Any
    model: Any
    model_seconds: float
    queries: pd.DataFrame
    refused_row: pd.DataFrame


class CountedModel:
    """A classifier that counts its calls and their rows."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.classes_ = model.classes_
        self.n_calls = 0
        self.n_rows = 0

    def predict(self, rows: Any) -> NDArray[Any]:
        self._count(rows)
        return self.model.predict(rows)

    def predict_proba(self, rows: Any) -> Floats:
        self._count(rows)
        return self.model.predict_proba(rows)

    def reset(self) -> None:
        self.n_calls = 0
        self.n_rows = 0

    def _count(self, rows: Any) -> None:
        self.n_calls += 1
        self.n_rows += len(rows)


def cpu_seconds(call: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """Return the result of a call and the CPU seconds that it takes."""
    start = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - start


def read_case(table: str, seed: int, data: Path) -> Case:
    """Split a table, fit the forest and choose the queries."""
    frame, about = read(table, data)
    train, test = split(frame, 0.6, seed)
    train = train.head(MOST_TRAINING_ROWS)
    rows = train[about["features"]]
    labels = train[about["target"]]
    desired = about["desired_outcome"]

    def fit_forest() -> Any:
        return forest(rows, labels, max_leaf_nodes=LEAVES[table])

    _, first_seconds = cpu_seconds(fit_forest)
    model, second_seconds = cpu_seconds(fit_forest)
    candidates = test[about["features"]].head(MOST_TEST_ROWS)
    refused = candidates[model.predict(candidates) != desired]
    refused_rows = rows[model.predict(rows) != desired]
    return Case(
        table=table,
        train=rows,
        labels=labels,
        schema=schema_of(train, about),
        desired=desired,
        model=model,
        model_seconds=min(first_seconds, second_seconds),
        queries=refused.head(MOST_QUERIES).reset_index(drop=True),
        refused_row=refused_rows.head(1).reset_index(drop=True),
    )


# --- Distance


class Heom:
    """The heterogeneous Euclidean-overlap metric, summed over features.

    Two numbers differ by their distance divided by the range of the training rows, two categories
    by 0 or 1. A missing value differs by 0 from a missing value and by 1 from any other.
    """

    def __init__(self, train: pd.DataFrame) -> None:
        self._ranges = {}
        for name in train:
            if is_numeric_dtype(train[name]):
                self._ranges[name] = float(train[name].max() - train[name].min()) or 1.0

    def by_feature(self, rows: pd.DataFrame, others: pd.DataFrame) -> Floats:
        """Return the distance of each row from the other one, (n_rows, n_features)."""
        gaps = np.empty(rows.shape)
        for column, name in enumerate(rows):
            values = rows[name].reset_index(drop=True)
            other_values = others[name].reset_index(drop=True)
            if name in self._ranges:
                difference = values.astype(float) - other_values.astype(float)
                gap = (difference.abs() / self._ranges[name]).fillna(1.0)
            else:
                gap = (values != other_values).astype(float)
            both_missing = values.isna() & other_values.isna()
            gaps[:, column] = gap.mask(both_missing, 0.0)
        return gaps

    def to_nearest(self, row: pd.DataFrame, candidates: pd.DataFrame) -> float:
        """Return the distance of one row, a table of length 1, to the nearest candidate."""
        copies = row.iloc[np.zeros(len(candidates), dtype=int)]
        return float(self.by_feature(copies, candidates).sum(axis=1).min())


def row_distances(case: Case, heom: Heom, queries: pd.DataFrame) -> Floats:
    """Return how far the nearest training row with the outcome is from each query, (n_queries,)."""
    unlike = case.train[case.model.predict(case.train) == case.desired]
    return np.array([heom.to_nearest(queries.iloc[[i]], unlike) for i in range(len(queries))])


def nice_answers(case: Case, queries: pd.DataFrame) -> pd.DataFrame:
    """Return the counterfactual of NICE, with its default search, for each query."""
    every_row = pd.concat([case.train, queries])
    categories = {
        name: pd.Series(every_row[name].dropna().unique())
        for name in case.train
        if not is_numeric_dtype(case.train[name])
    }

    def encode(rows: pd.DataFrame) -> Floats:
        codes = rows.copy()
        for name, values in categories.items():
            codes[name] = pd.Index(values).get_indexer(
                pd.Index(rows[name])
            )  # -1 is a missing value
        return codes.to_numpy(dtype=float)

    def decode(codes: Floats) -> pd.DataFrame:
        rows = pd.DataFrame(codes, columns=case.train.columns)
        for name, values in categories.items():
            rows[name] = values.reindex(rows[name].astype(int)).array
        return rows

    classes = list(case.model.classes_)
    explainer = NICE(
        lambda codes: case.model.predict_proba(decode(codes)),
        encode(case.train),
        cat_feat=[case.train.columns.get_loc(name) for name in categories],
        y_train=np.array([classes.index(label) for label in case.labels]),
    )
    target = [classes.index(case.desired)]
    answers = [explainer.explain(row[None, :], target_class=target)[0] for row in encode(queries)]
    return decode(np.array(answers))


# --- Changes that are larger than needed, or not needed at all


def leads(model: Any, rows: pd.DataFrame, desired: Any) -> Floats:
    """Return how far the desired outcome leads over the most probable other one, (n_rows,).

    For two classes this is ``(p - t) / (1 - t)`` with ``t = 0.5``. It is negative exactly where the
    model gives another outcome.
    """
    probabilities = model.predict_proba(rows)
    column = list(model.classes_).index(desired)
    others = np.delete(probabilities, column, axis=1)
    lead = probabilities[:, column] - others.max(axis=1)
    has_outcome = probabilities.argmax(axis=1) == column
    return np.where(has_outcome, lead, np.minimum(lead, -2 * TOLERANCE))


def n_decimals(values: pd.Series) -> int:
    """Return the decimals with which all numbers of a column can be written, at most 6."""
    numbers = values.dropna().to_numpy(dtype=float)
    for decimals in range(6):
        if np.allclose(numbers, numbers.round(decimals), rtol=0, atol=1e-9):
            return decimals
    return 6


def steps_between(factual: float, advised: float, decimals: int) -> Floats:
    """Return numbers from a person's own to the one of the answer, both included."""
    numbers = factual + np.arange(1, N_STEPS) / N_STEPS * (advised - factual)
    numbers = np.unique(numbers.round(decimals))
    low, high = sorted((factual, advised))
    inside = numbers[(numbers > low) & (numbers < high)]
    return np.array([factual, *inside, advised])


def smaller_changes(
    train: pd.DataFrame, queries: pd.DataFrame, points: pd.DataFrame
) -> pd.DataFrame:
    """List, for every change of an answer, this change in full, in part, and taken back.

    Parameters
    ----------
    train : DataFrame
        Its numeric columns can be changed in part, to numbers with as many decimals as its own.
    queries, points : DataFrame, shape (n_answers, n_features)
        What people have and what they are advised.

    Returns
    -------
    DataFrame
        `answer` and `feature` that is changed, `is_number`, the `value` to try, and its `share` of
        the change: 1 for the value of the answer, 0 for the person's own.
    """
    changed = Heom(train).by_feature(queries, points) > TOLERANCE
    trials = []
    for name in train:
        is_numeric = is_numeric_dtype(train[name])
        decimals = n_decimals(train[name]) if is_numeric else 0
        for answer in np.flatnonzero(changed[:, train.columns.get_loc(name)]):
            factual = queries[name].iloc[answer]
            advised = points[name].iloc[answer]
            is_number = bool(is_numeric and pd.notna(factual) and pd.notna(advised))
            values = np.array([factual, advised], dtype=object)
            shares = np.array([0.0, 1.0])
            if is_number:
                values = steps_between(factual, advised, decimals)
                shares = np.abs(values - factual) / abs(advised - factual)
            for value, share in zip(values, shares, strict=True):
                trials.append((answer, name, is_number, value, share))
    return pd.DataFrame(trials, columns=["answer", "feature", "is_number", "value", "share"])


def trial_leads(trials: pd.DataFrame, points: pd.DataFrame, model: Any, desired: Any) -> Floats:
    """Return the leads of the answers' points with one value replaced, (n_trials,)."""
    if trials.empty:
        return np.empty(0)
    rows = points.iloc[trials["answer"]].reset_index(drop=True)
    for name, of_feature in trials.groupby("feature"):
        rows.loc[of_feature.index, name] = of_feature["value"].astype(points[name].dtype)
    return leads(model, rows, desired)


def least_shares(trials: pd.DataFrame, lead: Floats, required: Floats) -> pd.DataFrame:
    """Return the least share of every change at which the model accepts the point.

    Parameters
    ----------
    trials : DataFrame
        Those of `smaller_changes`.
    lead : ndarray, shape (n_trials,)
    required : ndarray, shape (n_answers,)
        The lead from which the model accepts a point, at most the lead of the answer itself.

    Returns
    -------
    DataFrame
        One row per change: `answer`, `feature`, `is_number` and `share`.
    """
    is_accepted = lead >= required[trials["answer"].to_numpy(dtype=int)] - TOLERANCE
    changes = trials[is_accepted].groupby(["answer", "feature", "is_number"])
    return changes["share"].min().reset_index()


def needless_share(least: pd.DataFrame, n_answers: int) -> float:
    """Return the share of answers with a change that can be taken back altogether."""
    return least.loc[least["share"] == 0, "answer"].nunique() / n_answers


def asked_needed_quantiles(least: pd.DataFrame) -> tuple[float, float]:
    """Return median and 90 % quantile of the change that is asked divided by the one needed.

    Only numbers count. Both are NaN if no answer changes a number.
    """
    shares = least.loc[least["is_number"], "share"].to_numpy(dtype=float)
    if not len(shares):
        return np.nan, np.nan
    with np.errstate(divide="ignore"):
        ratios = 1 / shares
    median, high = np.quantile(ratios, [0.5, 0.9], method="inverted_cdf")
    return float(median), float(high)


def exaggeration(
    case: Case, queries: pd.DataFrame, points: pd.DataFrame, margins: Floats
) -> dict[str, float]:
    """Return how much more the answers ask for than needed, with their margins and without."""
    trials = smaller_changes(case.train, queries, points)
    lead = trial_leads(trials, points, case.model, case.desired)
    answer_leads = leads(case.model, points, case.desired)
    with_margin = least_shares(trials, lead, np.minimum(margins, answer_leads))
    without = least_shares(trials, lead, np.minimum(0.0, answer_leads))
    median, high = asked_needed_quantiles(with_margin)
    median_without, high_without = asked_needed_quantiles(without)
    return {
        "asked_needed_median": median,
        "asked_needed_p90": high,
        "asked_needed_median_no_margin": median_without,
        "asked_needed_p90_no_margin": high_without,
        "needless_margin": needless_share(with_margin, len(points)),
        "needless": needless_share(without, len(points)),
    }


# --- The figures of one split


def as_model_rows(points: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """Return points in the columns of the training rows: floats, and text or NaN."""
    rows = {}
    for name in train:
        if is_numeric_dtype(train[name]):
            rows[name] = points[name].astype(float)
        else:
            rows[name] = points[name].astype(object).where(points[name].notna(), np.nan)
    return pd.DataFrame(rows).reset_index(drop=True)


def answer_figures(case: Case, explanations: Explanations) -> dict[str, float]:
    """Return the figures of the answers to all queries."""
    positions, advised = advised_points(explanations, case.queries, case.train)
    if not positions:
        return {"answered": 0.0}
    points = as_model_rows(advised, case.train)
    queries = case.queries.iloc[positions].reset_index(drop=True)
    heom = Heom(case.train)
    gaps = heom.by_feature(queries, points)
    distance = gaps.sum(axis=1).mean()
    nice_distance = heom.by_feature(queries, nice_answers(case, queries)).sum(axis=1).mean()
    n_changes = (gaps > TOLERANCE).sum(axis=1)
    certificates = {entry.query: entry.certificate for entry in explanations.generalized}
    recounts = {entry.query: entry.recount for entry in explanations.generalized}
    margins = np.array([certificates[position].margin or 0.0 for position in positions])
    return {
        "answered": len(positions) / len(case.queries),
        "true": share_accepted(case.model, points, case.desired),
        "distance_to_row": distance / row_distances(case, heom, queries).mean(),
        "distance_to_nice": distance / nice_distance,
        "changes_mean": n_changes.mean(),
        "changes_above_four": (n_changes > MANY_CHANGES).mean(),
        **exaggeration(case, queries, points, margins),
        "ncp": np.mean([recounts[position].ncp for position in positions]),
        "pureness": np.mean([recounts[position].pureness for position in positions]),
        "survival": survival(case, points),
    }


def share_accepted(model: Any, points: pd.DataFrame, desired: Any) -> float:
    """Return the share of points for which a model gives the outcome."""
    return float((model.predict(points) == desired).mean())


def survival(case: Case, points: pd.DataFrame) -> float:
    """Return the mean share of points that retrained forests accept."""
    shares = []
    for seed in RETRAINING_SEEDS:
        bootstrap = np.random.default_rng(seed).integers(len(case.train), size=len(case.train))
        rows = case.train.iloc[bootstrap]
        labels = case.labels.iloc[bootstrap]
        model = forest(rows, labels, seed, max_leaf_nodes=LEAVES[case.table])
        shares.append(share_accepted(model, points, case.desired))
    return float(np.mean(shares))


def fit(case: Case) -> tuple[KAnonymizer, CountedModel, float]:
    """Fit the default settings; return also the model to count calls, and the CPU seconds.

    One query that is not measured is answered, so that preparations of a first call do not count.
    """
    model = CountedModel(case.model)

    def fit_default() -> KAnonymizer:
        population = Population.from_frame(case.train, case.schema, key=POPULATION_KEY)
        return KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, model, case.desired)

    anonymizer, seconds = cpu_seconds(fit_default)
    anonymizer.explain(case.refused_row)
    model.reset()
    return anonymizer, model, seconds


def measure(case: Case) -> dict[str, float]:
    """Return all figures of a split.

    One anonymizer answers the batch and another one the single queries, so that neither profits
    from what the model was asked before.
    """
    anonymizer, model, batch_fit_seconds = fit(case)
    explanations, batch_seconds = cpu_seconds(anonymizer.explain, case.queries)
    n_queries = len(case.queries)
    n_batch_calls = model.n_calls
    n_batch_rows = model.n_rows

    singles, single_model, single_fit_seconds = fit(case)
    alone = case.queries.head(N_ALONE)
    alone_seconds = 0.0
    for position in range(len(alone)):
        query = alone.iloc[[position]].reset_index(drop=True)
        _, seconds = cpu_seconds(singles.explain, query)
        alone_seconds += seconds
    fit_seconds = min(batch_fit_seconds, single_fit_seconds)
    return {
        **answer_figures(case, explanations),
        "entries": len(anonymizer.published()),
        "fit_seconds_per_model_fit": fit_seconds / case.model_seconds,
        "fit_seconds": fit_seconds,
        "ms_batch": 1000 * batch_seconds / n_queries,
        "ms_alone": 1000 * alone_seconds / len(alone),
        "model_calls_batch": n_batch_calls,
        "model_rows_per_answer": n_batch_rows / n_queries,
        "model_calls_alone": single_model.n_calls / len(alone),
    }


def measure_tables(
    tables: Sequence[str], splits: Sequence[int], data: Path, output: Path | None
) -> pd.DataFrame:
    """Return one row per table and split; write them to a file after each one."""
    rows = []
    for table in tables:
        for number, seed in enumerate(splits):
            case = read_case(table, seed, data)
            if number == 0:
                fit(case)[0].explain(case.queries)  # compiles what is compiled
            figures, seconds = cpu_seconds(measure, case)
            rows.append({"table": table, "split": seed, **figures})
            print(f"{table}, split {seed}: {seconds:.0f} CPU s", file=sys.stderr, flush=True)
            frame = pd.DataFrame(rows, columns=["table", "split", *FIGURES])
            if output is not None:
                frame.round(6).to_csv(output, index=False)
    return frame


# --- Before and now


def ratio_of(before: float, now: float) -> float:
    """Return the value now divided by the value before.

    Equal values have the ratio 1, also if they are 0 or infinite, and so have two negligible
    values. Without a value before, the ratio is 1. Without a value now, it is NaN.
    """
    if np.isnan(before) or before == now:
        return 1.0
    if np.isnan(now):
        return np.nan
    if max(before, now) <= NEGLIGIBLE:
        return 1.0
    if np.isinf(before):
        return 0.0
    if before == 0:
        return np.inf
    return now / before


def is_worse(figure: Figure, ratio: float, tolerance: float) -> bool:
    """Return whether a ratio of now to before is worse than the tolerance allows."""
    if figure.better == "neither":
        return False
    loss = ratio - 1 if figure.better == "lower" else 1 - ratio
    return not loss <= tolerance + TOLERANCE  # a missing value is worse, too


def compare(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Compare the means over splits of every figure on every table.

    Only tables and splits that both contain are compared.

    Returns
    -------
    DataFrame
        Columns `figure`, `table`, `before`, `now`, `ratio`, `is_worse`. In a row with the table
        "average", `ratio` is the mean over the tables.

    Raises
    ------
    ValueError
        If no table and split is in both.
    """
    keys = ["table", "split"]
    common = before[keys].merge(now[keys])
    if common.empty:
        raise ValueError("the files have no table and split in common")
    old_means = common.merge(before).groupby("table").mean()
    new_means = common.merge(now).groupby("table").mean()
    rows = []
    for name, figure in FIGURES.items():
        ratios = []
        for table in old_means.index:
            old = old_means.loc[table, name]
            new = new_means.loc[table, name]
            ratio = ratio_of(old, new)
            ratios.append(ratio)
            rows.append((name, table, old, new, ratio, is_worse(figure, ratio, figure.on_table)))
        average = float(np.mean(ratios))
        failed = is_worse(figure, average, figure.on_average)
        rows.append((name, "average", np.nan, np.nan, average, failed))
    return pd.DataFrame(rows, columns=["figure", "table", "before", "now", "ratio", "is_worse"])


def print_comparison(comparison: pd.DataFrame) -> None:
    """Print one line per figure and table; a figure that is worse than allowed is marked."""
    shown = comparison.copy()
    shown["is_worse"] = np.where(comparison["is_worse"], "WORSE", "")
    shown = shown.rename(columns={"is_worse": ""})
    print(shown.to_string(index=False, na_rep="", float_format="{:.3f}".format))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, help="the CSV file to write")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--compare", nargs="+", type=Path, metavar="CSV", help="the file before, and the one now"
    )
    options = parser.parse_args(arguments)
    files = options.compare or []
    if len(files) > 2:
        parser.error("--compare takes one or two files")
    if not files and options.output is None:
        parser.error("--output or --compare is required")
    if len(files) == 2:
        now = pd.read_csv(files[1])
    else:
        warnings.simplefilter("ignore")
        with threadpool_limits(limits=1):
            now = measure_tables(options.tables, options.splits, options.data, options.output)
    if not files:
        return 0
    before = pd.read_csv(files[0])
    comparison = compare(before, now)
    print_comparison(comparison)
    n_common = len(before.merge(now, on=["table", "split"]))
    print(f"{n_common} of {len(before)} rows of {files[0]} are compared")
    return int(comparison["is_worse"].any())


if __name__ == "__main__":
    sys.exit(main())
