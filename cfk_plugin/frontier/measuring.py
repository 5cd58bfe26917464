"""Protecting the same counterfactuals under every k."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.intake import Counterfactual, as_table, require_features
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.frontier.baselines import baselines
from cfk_plugin.frontier.result import Frontier, Point
from cfk_plugin.metrics import Estimate, wilson
from cfk_plugin.metrics.intervals import mean_of
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.guarantees import AUTO, check
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual, Suppressed

if TYPE_CHECKING:
    from cfk_plugin.hookspecs import Progress, Protector

KS = (2, 3, 5, 10, 15, 20, 25, 30)
"""The k that are tried where none are named."""


def frontier(
    counterfactuals: pd.DataFrame | Sequence[Counterfactual],
    *,
    population: Population,
    model: Any,
    desired: Any,
    policy: PrivacyPolicy | None = None,
    ks: Iterable[int] | None = None,
    factuals: pd.DataFrame | None = None,
    method: str | Protector = AUTO,
    compare: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Frontier:
    """Protect the same counterfactuals under every k and measure what each k costs. Nothing is released.

    It says what k costs and not what it protects against: that is the policy's guarantee. Plugins are not told of
    releases, and no ledger is asked or written.

    Parameters
    ----------
    counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
        Raw counterfactuals, as for `KAnonymizer.transform`.
    population, model, desired
        As for `KAnonymizer.fit`.
    policy : PrivacyPolicy, optional
        Its k is replaced. Default: the population's, else ``PrivacyPolicy()``.
    ks : iterable of int, optional
        Default: those of `KS` that the population allows.
    factuals : DataFrame, shape (n, n_features or more), optional
        The instance that each counterfactual explains; needed only for ``desired="opposite"``.
    method : str or Protector
        As for `KAnonymizer`.
    compare : bool
        Whether the policy at its own k is also compared with no protection and with Mondrian over the whole table, and
        distances to training rows are measured; needs rows.
    seed : int
        Of protectors and samples that draw random numbers, and of the bootstrap.
    progress : callable, optional
        Called with (done, total) k.

    Returns
    -------
    Frontier

    Warns
    -----
    NominalGuaranteeWarning
        If the guarantee is nominal.

    Raises
    ------
    PolicyError
        If a k is above the number of people or below the floor of a sealed population, or as `KAnonymizer.fit`.
    ModelError
        If the model cannot be used.
    InputError
        If a table lacks features, the factuals are not one each, or `ks` holds something else than whole numbers.
    """
    if not isinstance(population, Population):
        raise InputError(f"population must be a Population, got {type(population).__name__}; use from_frame")
    policy = policy or population.policy or PrivacyPolicy()
    tried = _whole(ks, population)
    check(replace(policy, k=tried[-1]), method, population)  # refuses, and warns of a nominal guarantee, once
    frame, query = as_table(counterfactuals, population.schema.features)
    facts = None if factuals is None else require_features(factuals, population.schema.features, "factuals")
    if facts is not None and len(facts) != len(frame):
        raise InputError(f"{len(facts)} factuals for {len(frame)} counterfactuals; give one each")
    released: list[list[Entry]] = []
    for done, k in enumerate(tried, start=1):
        asked = replace(policy, k=k, on_infeasible="suppress")
        anonymizer = KAnonymizer(policy=asked, method=method, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NominalGuaranteeWarning)
            anonymizer.fit(population, model, desired)
        labels = anonymizer.factual_labels(facts) if facts is not None and anonymizer.goal_.is_opposite else None
        released.append(anonymizer.pipeline_.release(frame, query, labels)[0])
        if progress is not None:
            progress(done, len(tried))
    settings = {"population": population, "model": model, "desired": desired, "policy": policy, "method": method}
    beside = baselines(frame, query, labels, **settings, seed=seed) if compare else ()
    common = np.all([[isinstance(e, GeneralizedCounterfactual) for e in entries] for entries in released], axis=0)
    return Frontier(
        points=tuple(_point(k, entries, common, seed) for k, entries in zip(tried, released, strict=True)),
        policy=policy.to_dict(),
        method=anonymizer.method_,
        population=population.fingerprint,
        asked=len(frame),
        common=int(common.sum()),
        seed=seed,
        baselines=beside,
    )


def _whole(ks: Iterable[int] | None, population: Population) -> list[int]:
    """Return the k to try, smallest first."""
    if ks is None:
        floor = 2 if population.policy is None else population.policy.k
        return [k for k in KS if floor <= k <= population.n_people] or [floor]
    try:
        tried = sorted({index(k) for k in ks})
    except TypeError:
        tried = []
    if not tried:
        raise InputError("ks must be whole numbers, at least one; leave it out for the usual ones")
    return tried


def _point(k: int, entries: Sequence[Entry], common: NDArray[np.bool_], seed: int) -> Point:
    """Return the figures of one k."""
    certificates = [e.certificate if isinstance(e, GeneralizedCounterfactual) else None for e in entries]
    found = [c for c in certificates if c is not None]
    alike = [c for c, is_common in zip(certificates, common, strict=True) if c is not None and is_common]
    withheld = len(entries) - len(found)

    def mean(values: list[float]) -> Estimate:
        return mean_of(np.array(values), np.random.default_rng(seed))  # every k resamples the same counterfactuals

    return Point(
        k=k,
        asked=len(entries),
        released=len(found),
        k_min=min((c.k for c in found), default=None),
        reasons=dict(sorted(Counter(e.reason for e in entries if isinstance(e, Suppressed)).items())),
        ncp_mean=mean([c.ncp for c in found]),
        pureness_mean=mean([c.pureness for c in found]),
        suppressed_rate=Estimate(withheld / len(entries), *wilson(withheld, len(entries)), len(entries)),
        common_ncp_mean=mean([c.ncp for c in alike]),
        common_pureness_mean=mean([c.pureness for c in alike]),
    )
