"""How often an explainer that is not asked for answers would give training rows away."""

from __future__ import annotations

import logging
import time

import numpy as np
import pandas as pd

from cfk_plugin.adapting import CounterfactualBatch, ExplainerError
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.hookspecs import CounterfactualSource
from cfk_plugin.release.anonymizer import KAnonymizer

SECONDS = 10.0
"""No further person is explained after this time; a search that runs is not interrupted."""
_TRIED_PER_PERSON = 20  # rows to look at for one that the model refuses
_log = logging.getLogger("cfk_plugin")


def sample_of(
    source: CounterfactualSource, anonymizer: KAnonymizer, size: int
) -> dict[str, int] | None:
    """Ask an explainer for a few refused people of the population, and count what detection finds.

    The people are drawn at random, and the explainer gets their rows. Their counterfactuals are
    compared with the training rows and forgotten. An explainer that fails is a warning in the log,
    without its text.

    Parameters
    ----------
    source : CounterfactualSource
        The explainer, as its adapter presents it.
    anonymizer : KAnonymizer
        Fitted where the rows are.
    size : int
        Most people to explain. They are drawn with the anonymizer's seed.

    Returns
    -------
    dict or None
        Number of counterfactuals that were ``examined``, and of those with each finding. None if
        none of the rows that were tried is refused, or no counterfactual was found.
    """
    rows = _rows_to_explain(anonymizer, size)
    if not len(rows):
        return None
    people = anonymizer.population_.rows(rows)[list(anonymizer.population_.schema.features)]
    people = people.reset_index(drop=True)
    counts = {"examined": 0}
    deadline = time.perf_counter() + SECONDS
    try:
        for position in range(len(people)):
            if time.perf_counter() > deadline:
                break
            _count(source, anonymizer, people.iloc[[position]], counts)
    except CFKError as error:
        _log.warning(
            "%s failed for a sample of refused people; how often it returns training rows is known"
            " of %d counterfactuals: %s",
            source.name,
            counts["examined"],
            error,
        )
    return counts if counts["examined"] else None


def _rows_to_explain(anonymizer: KAnonymizer, size: int) -> Rows:
    """Return the positions of random training rows that do not have the desired outcome.

    With the goal "opposite" every row can be explained.
    """
    population = anonymizer.population_
    n_tried = min(size * _TRIED_PER_PERSON, population.n_rows)
    order = np.random.default_rng(anonymizer.seed).permutation(population.n_rows)[:n_tried]
    goal = anonymizer.goal_
    if not goal.may_be_met_already:
        return order[:size]
    labels = anonymizer.pipeline_.rows.labels(order)
    return order[~goal.is_met(labels, labels)][:size]


def _count(
    source: CounterfactualSource,
    anonymizer: KAnonymizer,
    person: pd.DataFrame,
    counts: dict[str, int],
) -> None:
    with quiet("it raised {}", ExplainerError, let=CFKError):
        batch = source.generate(person)
    if not isinstance(batch, CounterfactualBatch) or not len(batch.frame):
        return
    pipeline = anonymizer.pipeline_
    features = list(anonymizer.population_.schema.features)
    with quiet("its counterfactuals cannot be read: {}", ExplainerError, let=CFKError):
        frame = batch.frame[features]
        encoded = encode(frame, anonymizer.population_.encoder)
        findings = pipeline.detect(frame, encoded, instance_based=source.instance_based)
    for finding in findings:
        if finding is not None:
            counts["examined"] += 1
            counts[finding] = counts.get(finding, 0) + 1
