"""Measure how often an explainer returns training rows if the catalogue answers in its place."""

from __future__ import annotations

import logging
import time
from collections import Counter

import numpy as np
import pandas as pd

from cfk_plugin.adapting import CounterfactualBatch, ExplainerError
from cfk_plugin.data.codes import Ints
from cfk_plugin.data.population import Population
from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.hookspecs import CounterfactualSource, NativeStatus
from cfk_plugin.release.anonymizer import KAnonymizer

SECONDS = 10.0
"""No search starts after this time; a running search is not stopped."""
_TRIED_PER_PERSON = 20  # rows that the model labels for each person to explain
_log = logging.getLogger("cfk_plugin")


def sample_of(
    source: CounterfactualSource, anonymizer: KAnonymizer, size: int
) -> dict[str, int] | None:
    """Explain a random sample of people without the desired outcome, and count native results.

    The explainer gets the rows of these people. Its counterfactuals are compared with the training
    rows and not stored. If the explainer fails, a warning is logged without the explainer's text.

    Parameters
    ----------
    source : CounterfactualSource
        The source that the adapter made for the explainer.
    anonymizer : KAnonymizer
        Fitted. Its random state draws the people.
    size : int
        The largest number of people to explain.

    Returns
    -------
    dict or None
        The number of counterfactuals that were compared as ``examined``, and the number with each
        `NativeStatus`. None if this process does not have all rows, if the sample contains no
        person without the desired outcome, or if the explainer found no counterfactual.
    """
    population = anonymizer.population_
    if population is None or population.whole is not None:
        return None
    rows = _rows_to_explain(anonymizer, population, size)
    if not len(rows):
        return None
    people = population.rows(rows)[list(anonymizer.schema_.features)]
    people = people.reset_index(drop=True)
    findings: list[NativeStatus] = []
    deadline = time.perf_counter() + SECONDS
    try:
        for position in range(len(people)):
            if time.perf_counter() > deadline:
                break
            findings += _findings(source, anonymizer, people.iloc[[position]])
    except CFKError as error:
        _log.warning(
            "%s failed for a sample of people; how often it returns training rows is measured"
            " with %d counterfactuals: %s",
            source.name,
            len(findings),
            error,
        )
    if not findings:
        return None
    return {"examined": len(findings), **Counter(findings)}


def _rows_to_explain(anonymizer: KAnonymizer, population: Population, size: int) -> Ints:
    """Return the positions of random training rows without the desired outcome.

    With the goal "opposite", every row qualifies.
    """
    n_tried = min(size * _TRIED_PER_PERSON, population.n_rows)
    order = np.random.default_rng(anonymizer.random_state).permutation(population.n_rows)[:n_tried]
    people = population.rows(order)[list(population.schema.features)]
    goal = anonymizer.goal_
    has_outcome = goal.is_met_already(len(order), lambda: anonymizer.model_(people).astype(object))
    return order[~has_outcome][:size]


def _findings(
    source: CounterfactualSource, anonymizer: KAnonymizer, person: pd.DataFrame
) -> list[NativeStatus]:
    """Explain one person, in a table of one row, and compare each counterfactual with the rows."""
    with quiet("it raised {}", ExplainerError, let=CFKError):
        batch = source.generate(person)
    if not isinstance(batch, CounterfactualBatch) or not len(batch.frame):
        return []
    features = list(anonymizer.schema_.features)
    with quiet("its counterfactuals cannot be read: {}", ExplainerError, let=CFKError):
        counterfactuals = anonymizer.rows(batch.frame[features])
        findings = anonymizer.findings(counterfactuals, instance_based=source.instance_based)
    return [finding for finding in findings if finding is not None]
