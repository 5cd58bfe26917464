"""Linkage attacks on an owner who protects: the anonymizer and raw counterfactuals of one training, under attack."""

from __future__ import annotations

import warnings

import numpy as np

from cfk_plugin.audit.attacked import ExplainerFactory, ProtectedOwner, Sample
from cfk_plugin.audit.attacked.trained import DESIRED, fitted
from cfk_plugin.audit.report import AuditReport, run_linkage_audit
from cfk_plugin.audit.running import Work
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import NominalGuaranteeWarning
from cfk_plugin.hookspecs import AdaptContext, Progress
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.anonymizer import KAnonymizer

ATTACKS = ("linkage", "model_filter", "homogeneity", "uniqueness")
"""Those that take seconds. Inversion, steering and the others run the algorithm for everybody: `cfk audit linkage`."""

_PER_EXPLANATION = 2e-5  # seconds for each person trained on, for all of them


def linkage_of(
    owner: ProtectedOwner,
    sample: Sample,
    explainer: ExplainerFactory,
    *,
    n_train: int,
    explained: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> AuditReport:
    """Train once and run quick linkage attacks on what would be released.

    Parameters
    ----------
    owner : ProtectedOwner
    sample : Sample
        Split at random: `n_train` people are trained on, half of the others ask, the rest is the control.
    explainer : ExplainerFactory
        Finds the raw counterfactuals; the catalogue has none of its own.
    n_train, explained : int
        People trained on, and the most explanations attacked.
    seed : int
    progress : callable, optional
        Called with (done, total) attacks.

    Returns
    -------
    AuditReport
    """
    order = np.random.default_rng([seed, 4]).permutation(len(sample))
    half = n_train + (len(sample) - n_train) // 2
    table, asking, outside = (sample.take(rows) for rows in (order[:n_train], order[n_train:half], order[half:]))
    model = fitted(owner.model, table, seed)
    queries = asking.X[~(model.predict(asking.X) == DESIRED)].head(explained).reset_index(drop=True)
    schema = owner.schema or Schema.from_frame(table.X, quasi_identifiers=owner.quasi_identifiers)
    features = tuple(schema.features)
    source = load_plugins().adapt(explainer(table.X, table.y, model, DESIRED, seed), AdaptContext(features, None))
    batch = source.generate(queries)
    anonymizer = KAnonymizer(policy=owner.rules, method=owner.method, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NominalGuaranteeWarning)  # for who releases; here it is measured
        anonymizer.fit(Population.from_frame(table.X, schema), model=model, desired=DESIRED)
    answered = queries.take(batch.query[batch.slot]).reset_index(drop=True)
    setting = Setting(anonymizer, batch.frame, answered, outside.X, seed=seed, limit=explained)
    return run_linkage_audit(setting, ATTACKS, progress=progress)


def linkage_work(*, n_train: int, explained: int) -> Work:
    """Say what `linkage_of` has to do; the attacks' own time is what they took on german and adult, about."""
    return Work(1, explained, _PER_EXPLANATION * n_train * explained)
