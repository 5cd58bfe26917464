"""Who was in the training table? Raw explainers, guarantees and differentially private rows, side
by side.

    .venv/bin/python tests/benchmarks/membership_table.py --data ../shared/data --table german
    --train 300

A forest without limits knows its training people by heart; the service that explains it is attacked
by the distances of its answers (CFD, CFD-LRT) and by the model's confidence (Loss, Loss-LRT).
Everybody is attacked on the same people. DiCE is slow: it has sizes of its own. Domains of the
differentially private rows are declared as code books have them. Prints a Markdown table: each
figure with its 95 % interval. With ``--splits 12``, instead, the mean AUC of CFD over so many
splits of the table, without shadows, so that everybody who is not trained on can be compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import dice_ml
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.membership import HeomSum, SampleParts, membership
from cfk_plugin.audit.result import measure_roc, readable, side_by_side
from cfk_plugin.audit.targets import (
    PrototypeOwner,
    Sample,
    Target,
    compare,
    full_depth_forest,
    standard_owners,
)
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import generator, load_plugins
from printing import DATA, arguments, heading, line
from prototypes import declared
from tables import read

Labels = NDArray[np.bool_]


def nice(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any, seed: int, *, optimization: str
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Make an explainer by NICE: the nearest training row, moved back to the query unless
    `optimization` is none.
    """
    make: Any = generator("nice")
    explainer = make(train, labels, model, desired, optimization=optimization).nice
    return lambda queries: explainer.decode(explainer.explain(queries))


@dataclass(frozen=True, repr=False)
class Dice:
    """DiCE, asked for one counterfactual each, with a seed."""

    explainer: Any
    features: tuple[str, ...]
    options: dict[str, Any]

    def explain(self, queries: pd.DataFrame) -> pd.DataFrame:
        source = load_plugins().adapt(self.explainer, AdaptContext(self.features, None))
        batch = source.generate(queries, **self.options)
        row_of = np.full(len(queries), -1)
        row_of[batch.query[batch.slot]] = np.arange(len(batch.frame))
        return batch.frame.reindex(row_of).set_axis(queries.index)


def dice(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any, seed: int, *, method: str
) -> Dice:
    """Make an explainer by DiCE; the sparsity step that it does by default takes steps of 1 over a
    number's range.
    """
    numbers = [name for name in train if pd.api.types.is_numeric_dtype(train[name])]
    data = dice_ml.Data(
        dataframe=train.assign(outcome=labels), continuous_features=numbers, outcome_name="outcome"
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method=method)
    seeded = {"random_seed": seed} if method == "random" else {}
    return Dice(explainer, tuple(train.columns), {"posthoc_sparsity_algorithm": "binary", **seeded})


EXPLAINERS = {
    "nice": partial(nice, optimization="none"),
    "nice-sparsity": partial(nice, optimization="sparsity"),
    "dice-random": partial(dice, method="random"),
    "dice-kdtree": partial(dice, method="kdtree"),
}


def main() -> None:
    options = arguments(
        __doc__,
        data=DATA,
        table="german",
        train=300,
        trees=50,
        k=10,
        shadows=8,
        attacked=150,
        dice_shadows=4,
        dice_attacked=50,
        seed=0,
        splits=0,
        only=[],
    )
    frame, about = read(options.table, options.data)
    sample = Sample(
        frame[about["features"]], (frame[about["target"]] == about["desired_outcome"]).to_numpy()
    )
    schema = declared(options.table, sample.X, about)
    model = full_depth_forest(sample.X, options.trees)
    owners = standard_owners(
        sample,
        model,
        EXPLAINERS,
        about["quasi_identifiers"],
        protects="nice",
        k=options.k,
        schema=schema,
    )
    (moved_towards_query,) = (
        owner for owner in owners if isinstance(owner, PrototypeOwner) and owner.move_towards_query
    )
    owners.append(replace(moved_towards_query, name="dp-nearest", plausibility=0.0))
    owners = [owner for owner in owners if not options.only or owner.name in options.only]
    if options.splits:
        for owner in owners:
            found = np.array(
                [distance_auc(owner, sample, options.train, seed) for seed in range(options.splits)]
            )
            error = found.std(ddof=1) / np.sqrt(len(found))
            print(
                f"{owner.name:14} {found.mean():.3f}, standard error {error:.3f} over {len(found)} splits",
                flush=True,
            )
        return
    reports = []
    for owner in owners:
        slow = owner.name.startswith("dice")
        started = perf_counter()
        reports += compare(
            [owner],
            sample,
            membership,
            n_train=options.train,
            n_shadows=options.dice_shadows if slow else options.shadows,
            attacked=options.dice_attacked if slow else options.attacked,
            seed=options.seed,
        )
        print(f"{owner.name}: {perf_counter() - started:.0f} s", file=sys.stderr)
    table = readable(side_by_side(reports))
    print(heading(*table), *(line(*row) for row in table.itertuples(index=False)), sep="\n")


def distance_auc(owner: Target, sample: Sample, n_train: int, seed: int) -> float:
    """Return the AUC of CFD, with all undesired people of the table and all others."""
    parts = SampleParts.cut(sample, n_train, seed)
    service, apart = owner.train(parts.table, seed), HeomSum.fit(parts.pool.X)

    def distances(people: pd.DataFrame) -> NDArray[np.float64]:
        queries = people[~service.desired(people)].reset_index(drop=True)
        answers = service.explain(queries)
        return apart(queries[answers.found], answers.rows[answers.found])

    others = pd.concat([parts.others.X, parts.pool.X], ignore_index=True)
    return measure_roc(distances(parts.table.X), distances(others)).auc.value


if __name__ == "__main__":
    main()
