"""Answers beside the unprotected explainers' own: how near, how true, how many people; on the six
tables.

Run it from the repository's root: ``python tests/benchmarks/answers.py --data FOLDER [--tables
adult,cmc] [--k 5,10,20] [--limit 200] [--only catalogue,nearest,...] [--key 0]
[--membership RUNS] [--shared SPLITS]``. The queries are undesired test rows, the models those of
the benchmarks; groups depend on the population's key.
Distance is HEOM summed over all features, to the nearest point of what was released; changes are
features that differ there; both are beside the nearest unlike training row, which is what `nearest`
stands for. True is an answer when the model gives the desired outcome at that point. Answers that
are withheld count as unanswered and in nothing else. One private row is the share of answers whose
private values, as they left, are exactly those of one training row.

``--shared SPLITS`` compares catalogues with shared private values with those with exact ones. Both
searches start at the query. Each split has rows, a model and a key of its own. The distance of
queries that both answer is that of shared private values beside that of exact ones. Fit is the
ratio of their CPU seconds in this process: the least of three fits each, which take turns.

``--few SPLITS`` compares answers under the defaults of `KAnonymizer` with answers that are chosen by
distance alone and are not rounded. A change is what an answer's sentence lists. Small changes are of
private numbers, by less than 1 % of the column's range. Digits are those of changed private numbers,
without zeros before and behind.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.data.policy import PrivateForm
from cfk_plugin.frontier import nearest_points
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.plugins import generator
from cfk_plugin.release.explanations import Explanations
from printing import DATA, arguments, heading, line
from tables import TABLES, Case, case

# queries answered, the nearest point for each, the result
Found = tuple[list[int], pd.DataFrame, Explanations | None]

HEAD = (
    "table",
    "k",
    "answers",
    "answered %",
    "distance",
    "changes",
    "true %",
    "pureness %",
    "least",
    "k effective",
)
HEAD += ("k desired", "k consistent", "NCP %", "one private row %", "ms")


def released(table: Case, explanations: Explanations) -> Found:
    entries, queries = explanations.generalized, table.queries.to_dict("records")
    asking: Any = [queries[entry.query] for entry in entries]
    frame = nearest_points(entries, asking, table.population)
    return [entry.query for entry in entries], table.population.conform(frame), explanations


def unprotected(rows: pd.DataFrame) -> Found:
    answered = rows.notna().any(axis=1).to_numpy()
    return np.flatnonzero(answered).tolist(), rows[answered].reset_index(drop=True), None


def by(library: str, **settings: Any) -> Callable[[Case], pd.DataFrame]:
    """Return an explainer of the library itself; rows without a value where it finds nothing."""

    def explain(table: Case) -> pd.DataFrame:
        train = table.population.frame
        made: Any = generator(library)
        rows = made(train, table.model.predict(train), table.model, table.desired, **settings)
        if library == "nice":  # whose own search leaves the training rows
            return pd.DataFrame(rows.nice.decode(rows.nice.explain(table.queries)))
        found: pd.DataFrame = rows.explain(table.queries)
        return found

    return explain


def from_catalogue(**settings: Any) -> Callable[[Case, int], Found]:
    def found(table: Case, k: int) -> Found:
        # exact private values, where a name does not say otherwise
        policy = PrivacyPolicy(k=k, **{"private_values": "exact", **settings})
        anonymizer = KAnonymizer(policy=policy).fit(table.population, table.model, table.desired)
        return released(table, anonymizer.explain(table.queries))

    return found


def binned(**settings: Any) -> Callable[[Case, int], Found]:
    """Do so with private numbers as one of five bins of equal width."""

    def found(table: Case, k: int) -> Found:
        population, bins = table.population, dict[str, list[float]]()
        for name in population.schema.private:
            if (domain := population.domains[name]).is_numeric and domain.width:
                bins[name] = np.linspace(domain.values[0], domain.values[-1], 6).tolist()
        schema = Schema.from_frame(
            population.frame, quasi_identifiers=population.schema.quasi_identifiers, bins=bins
        )
        with_bins = replace(table, population=Population.from_frame(population.frame, schema))
        return from_catalogue(private_values="bins", **settings)(with_bins, k)

    return found


def behind(guarantee: str, **settings: Any) -> Callable[[Case, int], Found]:
    def found(table: Case, k: int) -> Found:
        explainer = NearestUnlikeNeighbour(
            table.population.frame, table.model, desired=table.desired
        )
        policy = PrivacyPolicy(
            **{"k": k, "guarantee": guarantee, "private_values": "exact", **settings}
        )
        told: dict[str, Any] = {
            "model": table.model,
            "population": table.population,
            "desired": table.desired,
            "start": "explainer",
        }
        return released(table, protect(explainer, policy=policy, **told).explain(table.queries))

    return found


RAW: dict[str, Callable[[Case], pd.DataFrame]] = {
    "nearest": lambda table: table.counterfactuals,
    "NICE": by("nice", optimization="none"),
    "NICE-sparsity": by("nice", optimization="sparsity"),
    "NICE-proximity": by("nice", optimization="proximity"),
    "DiCE-random": by("dice-random"),
    "DiCE-genetic": by("dice-genetic"),
}
PROTECTED: dict[str, Callable[[Case, int], Found]] = {
    "catalogue": from_catalogue(),
    "catalogue-unmoved": from_catalogue(move_towards_query=False),
    "catalogue-explainer": behind("catalogue"),
    "catalogue-bins": binned(),
    "catalogue-rare": from_catalogue(rare_values="withhold"),
    "catalogue-shared": from_catalogue(private_values="shared"),
    "catalogue-shared-unmoved": from_catalogue(private_values="shared", move_towards_query=False),
    "catalogue-shared-explainer": behind("catalogue", private_values="shared"),
    "reciprocal": behind("reciprocal"),
    "lookup": behind("lookup"),
}


def measure(table: Case, k: int, name: str, base: np.ndarray, heom: Heom) -> str:
    started = time.process_time()
    at, points, result = unprotected(RAW[name](table)) if name in RAW else PROTECTED[name](table, k)
    spent = 1000 * (time.process_time() - started) / len(table.queries)
    features = list(table.population.schema.features)
    gaps = heom.parts(table.queries[features].iloc[at].reset_index(drop=True), points[features])
    own = base[at]
    distance, changes = (
        gaps.sum(axis=1).mean() / own.sum(axis=1).mean(),
        (gaps > 1e-12).sum() / (own > 0).sum(),
    )
    true = np.mean(table.model.predict(points[features]) == table.desired)
    return line(table.name, k if result else "–", name, *shares(len(at) / len(base)), f"{distance:.2f}",
                f"{changes:.2f}", *shares(true), *people(result), f"{spent:.1f}")  # fmt: skip


def shares(*values: float) -> Iterator[str]:
    yield from (f"{100 * value:.1f}".removesuffix(".0") for value in values)


def people(result: Explanations | None) -> Iterator[str]:
    if result is None:
        yield from ("–",) * 7
        return
    s = result.summary()
    yield from shares(
        s["pureness_mean"], min(entry.certificate.pureness for entry in result.generalized)
    )
    yield from (str(s[name]) for name in ("k_effective_min", "k_desired_min", "k_consistent_min"))
    yield from shares(
        s["ncp_mean"], np.mean([entry.recount.private_matches == 1 for entry in result.generalized])
    )


# of each run the distances of members and others, as they are and moved
Runs = list[tuple[np.ndarray, np.ndarray]]


def membership(tables: list[Case], k: int) -> str:
    """Tell members from others by how far the answer is from who asks: AUC, moved or not, and what
    moving adds.

    A run has a split, a model and groups of its own; intervals are by bootstrap over runs, and
    people in these.
    """
    runs = Runs()
    for table in tables:
        train = table.population.frame
        undesired = train[table.model.predict(train) != table.desired].sample(
            frac=1, random_state=0
        )
        asked = pd.concat(
            [undesired.head(len(table.queries)), table.queries[list(train)]], ignore_index=True
        )
        away, is_other = (
            np.full((2, len(asked)), np.nan),
            np.arange(len(asked)) >= len(asked) - len(table.queries),
        )
        for name, distances in zip(("catalogue-unmoved", "catalogue"), away, strict=True):
            at, points, _ = PROTECTED[name](replace(table, queries=asked), k)
            distances[at] = (
                Heom.of(table.population).parts(asked.iloc[at], points[list(train)]).sum(axis=1)
            )
        known = ~np.isnan(away).any(axis=0)
        runs.append((away[:, known & ~is_other], away[:, known & is_other]))
    found, random = areas(runs), np.random.default_rng(0)
    low, high = np.percentile(
        [areas(drawn(runs, random)) for _ in range(1000)], [2.5, 97.5], axis=0
    )
    cells = [
        f"{v:.3f} ({least:.3f} to {most:.3f})"
        for v, least, most in zip(found, low, high, strict=True)
    ]
    return line(
        tables[0].name,
        k,
        len(runs),
        *(sum(side[i].shape[1] for side in runs) for i in (0, 1)),
        *cells,
    )


def areas(runs: Runs) -> tuple[float, float, float]:
    found = [[area(*both) for both in zip(*sides, strict=True)] for sides in runs]
    unmoved, moved = np.mean(found, axis=0).tolist()
    return unmoved, moved, moved - unmoved


def area(members: np.ndarray, others: np.ndarray) -> float:
    ranks = [np.searchsorted(np.sort(others), members, side).mean() for side in ("left", "right")]
    return float(np.mean(ranks) / len(others))


def drawn(runs: Runs, random: np.random.Generator) -> Runs:
    some = [runs[i] for i in random.integers(len(runs), size=len(runs))]
    return [
        tuple(side[:, random.integers(side.shape[1], size=side.shape[1])] for side in sides)
        for sides in some
    ]


@dataclass(frozen=True)
class CatalogueFigures:
    """What a catalogue gave on one split."""

    distance: dict[int, float]  # of the queries that are answered
    share_answered: float
    true: float  # share of answers that are true at the nearest point
    explanations: Explanations


def figures_of(table: Case, k: int, form: PrivateForm, heom: Heom) -> CatalogueFigures:
    """Fit a catalogue with a form of private values, and answer the queries of a table."""
    policy = PrivacyPolicy(k=k, private_values=form)
    anonymizer = KAnonymizer(policy=policy).fit(table.population, table.model, table.desired)
    explanations = anonymizer.explain(table.queries)
    answered, points, _ = released(table, explanations)
    features = list(table.population.schema.features)
    queries = table.queries[features].iloc[answered].reset_index(drop=True)
    distances = heom.parts(queries, points[features]).sum(axis=1)
    return CatalogueFigures(
        distance=dict(zip(answered, distances.tolist(), strict=True)),
        share_answered=len(answered) / len(table.queries),
        true=float(np.mean(table.model.predict(points[features]) == table.desired)),
        explanations=explanations,
    )


def fit_ratio(table: Case, k: int, rounds: int = 3) -> float:
    """Return the CPU seconds of a fit with shared private values divided by those with exact ones.

    Each is the least of some rounds. A round before them compiles, and fills what is kept with the
    population.
    """
    seconds: dict[PrivateForm, list[float]] = {"exact": [], "shared": []}
    for _ in range(rounds + 1):
        for form, spent in seconds.items():
            policy = PrivacyPolicy(k=k, private_values=form)
            started = time.process_time()
            KAnonymizer(policy=policy).fit(table.population, table.model, table.desired)
            spent.append(time.process_time() - started)
    return min(seconds["shared"][1:]) / min(seconds["exact"][1:])


SHARED_HEAD = ("table", "k", "split", "distance, shared / exact", "fit, shared / exact")
SHARED_HEAD += ("answered %, exact", "shared", "true %, exact", "shared")
SHARED_HEAD += ("pureness %, exact", "shared", "least, exact", "shared")
SHARED_HEAD += ("k consistent, exact", "shared")


def shared_beside_exact(table: Case, k: int, split: int, heom: Heom) -> tuple[float, str]:
    """Return the ratio of distances, and a line about both forms of private values."""
    exact = figures_of(table, k, "exact", heom)
    shared = figures_of(table, k, "shared", heom)
    both = [query for query in exact.distance if query in shared.distance]
    before = sum(exact.distance[query] for query in both)
    ratio = sum(shared.distance[query] for query in both) / before
    cells = [f"{ratio:.3f}", f"{fit_ratio(table, k):.2f}"]
    summaries = [form.explanations.summary() for form in (exact, shared)]
    least = [
        min(entry.certificate.pureness for entry in form.explanations.generalized)
        for form in (exact, shared)
    ]
    cells += shares(exact.share_answered, shared.share_answered, exact.true, shared.true)
    cells += shares(*(summary["pureness_mean"] for summary in summaries), *least)
    cells += [str(summary["k_consistent_min"]) for summary in summaries]
    return ratio, line(table.name, k, split, *cells)


def compare_shared(tables: list[str], data: Path, limit: int, ks: list[int], splits: int) -> None:
    """Print shared beside exact private values on some splits of tables, and means over splits."""
    print(heading(*SHARED_HEAD), flush=True)
    for name in tables:
        ratios = dict[int, list[float]]()
        for split in range(splits):
            table = case(name, data, limit, split, bytes([split]) * 32)
            heom = Heom.of(table.population)
            for k in ks:
                ratio, row = shared_beside_exact(table, k, split, heom)
                ratios.setdefault(k, []).append(ratio)
                print(row, flush=True)
        every = [ratio for of_k in ratios.values() for ratio in of_k]
        for k, of_k in {**ratios, "all": every}.items():
            print(line(name, k, "mean", f"{np.mean(of_k):.3f}", *[""] * 11), flush=True)


@dataclass(frozen=True)
class ChangeFigures:
    """What answers ask to change, on one split."""

    distance: dict[int, float]  # of the queries that are answered
    changes: NDArray[np.int64]  # of each answer
    n_small: int  # changes of private numbers by less than 1 % of the range
    digits: float  # mean over changed private numbers
    true: float  # share of answers that are true at the nearest point
    ms: float  # CPU milliseconds per query


FEW_HEAD = ("table", "options", "answered %", "distance", "changes", "median", "more than 4 %")
FEW_HEAD += ("small changes", "digits", "true %", "ms")
FEW: dict[str, dict[str, Any]] = {
    "distance alone": {"change_cost": 0.0, "rounding": False},
    "change_cost": {"rounding": False},
    "rounding": {"change_cost": 0.0},
    "default": {},
    "thorough": {"effort": "thorough"},
}


def change_figures(table: Case, k: int, heom: Heom, settings: dict[str, Any]) -> ChangeFigures:
    """Fit a catalogue with settings of `KAnonymizer`, and count what its answers change."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k), **settings)
    anonymizer.fit(table.population, table.model, table.desired)
    started = time.process_time()
    explanations = anonymizer.explain(table.queries)
    spent = 1000 * (time.process_time() - started) / len(table.queries)
    answered, points, _ = released(table, explanations)
    features = list(table.population.schema.features)
    queries = table.population.conform(table.queries[features])
    asking = queries.to_dict("records")
    changes, sizes, digits = [], [], []
    for entry in explanations.generalized:
        own = asking[entry.query]
        changed = entry.changes(own)
        changes.append(len(changed))
        for name in changed & set(heom.numeric) & set(table.population.schema.private):
            value = float(entry.released[name])
            sizes.append(abs(value - float(own[name])) / (heom.ranges[name] or 1.0))
            digits.append(n_digits(value))
    at = queries.iloc[answered].reset_index(drop=True)
    distances = heom.parts(at, points[features]).sum(axis=1)
    return ChangeFigures(
        distance=dict(zip(answered, distances.tolist(), strict=True)),
        changes=np.array(changes),
        n_small=int((np.array(sizes) < 0.01).sum()),
        digits=float(np.mean(digits)) if digits else 0.0,
        true=float(np.mean(table.model.predict(points[features]) == table.desired)),
        ms=spent,
    )


def n_digits(number: float) -> int:
    """Return the significant digits of a number: 2 of 1,200 and of 0.012."""
    return len(f"{abs(number):.10g}".replace(".", "").split("e")[0].strip("0"))


def compare_few(tables: list[str], data: Path, limit: int, ks: list[int], splits: int) -> None:
    """Print what answers ask to change, by setting; distances are beside those of the first."""
    print(heading(*FEW_HEAD), flush=True)
    for name in tables:
        for split in range(splits):
            table = case(name, data, limit, split, bytes([split]) * 32)
            heom = Heom.of(table.population)
            for k in ks:
                base = dict[int, float]()
                for label, settings in FEW.items():
                    figures = change_figures(table, k, heom, settings)
                    base = base or figures.distance
                    both = [query for query in base if query in figures.distance]
                    ratio = sum(figures.distance[query] for query in both)
                    ratio /= sum(base[query] for query in both)
                    n = len(figures.changes)
                    cells = [*shares(n / len(table.queries)), f"{ratio:.3f}"]
                    cells += [f"{figures.changes.mean():.2f}", f"{np.median(figures.changes):.0f}"]
                    cells += [*shares((figures.changes > 4).mean()), f"{figures.n_small / n:.2f}"]
                    cells += [f"{figures.digits:.2f}", *shares(figures.true), f"{figures.ms:.1f}"]
                    print(line(name, label, *cells), flush=True)


def main() -> None:
    options = arguments(
        __doc__,
        data=DATA,
        tables=TABLES,
        k=[10],
        limit=200,
        only=[*RAW, *PROTECTED],
        key=0,
        membership=0,
        shared=0,
        few=0,
    )
    warnings.simplefilter("ignore")
    if options.few:
        compare_few(options.tables, options.data, options.limit, options.k, options.few)
        return
    if options.shared:
        compare_shared(options.tables, options.data, options.limit, options.k, options.shared)
        return
    key = bytes([options.key]) * 32
    if options.membership:
        print(
            heading(
                "table",
                "k",
                "runs",
                "members",
                "others",
                "entries as they are",
                "moved",
                "difference",
            ),
            flush=True,
        )
        for name in options.tables:
            seeds = range(options.key, options.key + options.membership)
            cases = [
                case(name, options.data, options.limit, seed, bytes([seed]) * 32) for seed in seeds
            ]
            print(membership(cases, options.k[0]), flush=True)
        return
    print(heading(*HEAD), flush=True)
    for name in options.tables:
        table = case(name, options.data, options.limit, key=key)
        heom = Heom.of(table.population)
        base = heom.parts(
            table.queries[list(table.population.schema.features)], table.counterfactuals
        )
        for k in options.k:
            for method in options.only:
                if method in PROTECTED or k == options.k[0]:
                    print(measure(table, k, method, base, heom), flush=True)


if __name__ == "__main__":
    main()
