"""The cost of each k, measured on the same counterfactuals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.release.anonymizer import KAnonymizer

KS = (2, 3, 5, 10, 15, 20, 25, 30)
"""Default values of k, those of the paper's figures."""


def frontier(
    counterfactuals: pd.DataFrame,
    *,
    population: Population,
    model: Any,
    desired: Any,
    policy: PrivacyPolicy | None = None,
    ks: Iterable[int] = KS,
    factuals: pd.DataFrame | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Return information loss and pureness of the same counterfactuals for each k.

    The table shows the cost of k, not the protection it gives. Source: Goethals, Sörensen, Martens
    (2023), section 5.

    Parameters
    ----------
    counterfactuals, population, model, desired, factuals
        As for `KAnonymizer.fit` and `KAnonymizer.transform`.
    policy : PrivacyPolicy, optional
        The policy whose k is replaced; by default ``PrivacyPolicy()``.
    ks : iterable of int
        The values of k.
    **settings
        Other settings of `KAnonymizer`, such as ``method``.

    Returns
    -------
    DataFrame
        One row per k. Columns ``k``, ``released`` (a count), ``withheld_rate``, ``ncp_mean`` and
        ``pureness_mean`` (shares from 0 to 1), as in `Explanations.summary`. A mean covers the
        explanations that are released at this k, which may be fewer at a larger k.
    """
    rows = []
    for k in ks:
        k_policy = replace(policy or PrivacyPolicy(), k=k)
        anonymizer = KAnonymizer(policy=k_policy, **settings).fit(population, model, desired)
        summary = anonymizer.transform(counterfactuals, factuals).summary()
        names = ("released", "withheld_rate", "ncp_mean", "pureness_mean")
        rows.append({"k": k} | {name: summary[name] for name in names})
    return pd.DataFrame(rows).astype({"ncp_mean": float, "pureness_mean": float})
