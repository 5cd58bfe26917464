"""The function `protect`, and its decorator `protected`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from cfk_plugin.data.encoded_table import whole_number
from cfk_plugin.data.margin import checked_later
from cfk_plugin.data.model import thresholded
from cfk_plugin.data.policy import GuaranteeName, PrivacyPolicy
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, PolicyError, require
from cfk_plugin.hookspecs import AdaptContext, CounterfactualSource, Protector, depends_on_rows
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection.compiled import KERNELS
from cfk_plugin.protection.lookup.exact import ExactProtector
from cfk_plugin.records.journal import JOURNAL
from cfk_plugin.records.logger import logger_of
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.detection import distinct_rows
from cfk_plugin.release.explainer import ProtectedExplainer
from cfk_plugin.release.sampling import sample_of

if TYPE_CHECKING:
    from cfk_plugin.dp import DPPrototypes


def protect(
    explainer: Any = None,
    *,
    model: Any,
    population: Population,
    policy: PrivacyPolicy | None = None,
    k: int | None = None,
    desired: Any = "opposite",
    threshold: float | None = None,
    later: Sequence[Any] = (),
    method: str | Protector | KAnonymizer | DPPrototypes = "auto",
    track: bool | str = False,
    strict: bool = False,
    journal: str | Path = JOURNAL,
    plugins: Sequence[object] = (),
    groups: str | None = None,
    sample_explainer: int = 20,
) -> ProtectedExplainer:
    """Wrap an explainer so that only protected explanations leave it.

    Parameters
    ----------
    explainer : object
        A DiCE explainer, a NICE explainer, a callable from queries to counterfactuals, an object
        with such a method ``explain``, or anything a plugin has an adapter for.
        None: answers come from the catalogue or the prototypes.
    model : object with ``predict``, or callable
        The model that is explained; returns labels, or numbers where `desired` is a range or
        `threshold` is given.
    population : Population
        The training rows that the explainer may return.
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``, k = 10.
    k : int, optional
        Least number of people behind an explanation: short for ``policy=PrivacyPolicy(k=k)`` or,
        of a sealed catalogue, for its own policy with this k.
    desired : label, set of labels, (low, high), "opposite" or callable
        The outcome that counterfactuals reach; by default any other than the query's own. See
        `KAnonymizer.fit`.
    threshold : float, optional
        For a model that returns probabilities: from this value on, the outcome is 1, or the second
        class.
    later : sequence of models, optional
        Models that were trained again. Answers of the catalogue have an outcome that these give
        too; see `KAnonymizer.fit`. Prototypes do not use them.
    method : str, Protector, KAnonymizer or DPPrototypes
        A name or a protector: see `KAnonymizer`. A `KAnonymizer` is used with its own settings,
        such as `seed`; the object itself is not fitted or changed. "dp",
        or `DPPrototypes` with settings of your own: answers are differentially private prototypes,
        whatever the explainer would find. A `KAnonymizer` has its own policy and plugins, so
        that `policy`, `k` and `plugins` are refused beside it. Prototypes do not use `policy`, `k`
        and `later`, which are refused beside them.
    track : bool or str
        Whether to log every result to MLflow before it is returned, or the name of the experiment
        to log to.
    strict : bool
        Whether to withhold a result whose record can neither be logged nor be written to the
        journal. By default, there is one warning, and the next record counts the explanations.
    journal : path
        File for records that MLflow does not take, by default in the working folder. There is one
        warning; ``cfk track`` sends the records later.
    plugins : sequence
        Plugins for this run, beside installed ones.
    groups : str, optional
        Column of the queries that divides those who ask into groups in the logged runs, for example
        ``sex``; it need not be a feature. See `Explanations.by_group`.
    sample_explainer : int
        Where the explainer is not asked for answers: how many refused people of the population it
        explains here, so that runs can say how often it returns training rows. It gets their rows:
        write 0, for none, if it sends queries elsewhere or keeps them. No further person is
        explained after ten seconds. What it returns is compared with the rows and forgotten.

    Raises
    ------
    CFKError
        If policy, population, model and explainer do not fit together (see `KAnonymizer.fit`),
        or `strict` is set without `track`.
    """
    check_population(population)
    sample_explainer = whole_number("sample_explainer", sample_explainer, 0)
    if groups is not None:
        require("groups", groups, str, "name one column of the queries")
    logger = logger_of(track, strict=strict, journal=journal)
    if strict and logger is None:
        raise InputError("strict=True withholds what is not recorded; add track=True")
    model = thresholded(model, threshold)
    later = [thresholded(each, threshold) for each in checked_later(later)]
    context = AdaptContext(population.schema.features, population.schema.target)
    prototypes = _prototypes_of(method)
    if prototypes is not None:
        refused = {
            "policy": policy is not None,
            "k": k is not None,
            "later": len(later) > 0,
        }
        _refuse_what_is_not_used(refused, "prototypes have no policy, no k and no later models")
        wrapped = no_explainer if explainer is None else explainer
        source = load_plugins(plugins).adapt(wrapped, context)
        fitted = prototypes.fit(population, model, desired)
        return ProtectedExplainer(wrapped, source, fitted, logger or False, groups, is_asked=False)
    if isinstance(method, KAnonymizer):
        refused = {
            "policy": policy is not None,
            "k": k is not None,
            "plugins": len(plugins) > 0,
        }
        _refuse_what_is_not_used(refused, "the KAnonymizer that is given as method has its own")
        anonymizer = method.unfitted()
    else:
        anonymizer = KAnonymizer(
            policy=_policy_of(policy, k, population),
            method=cast("str | Protector", method),  # prototypes have answered above
            plugins=plugins,
        )
    anonymizer.fit(population, model=model, desired=desired, later=later)
    context = replace(
        context,
        classes=anonymizer.model_.classes,
        desired=anonymizer.goal_.common_desired,
    )
    wrapped = no_explainer if explainer is None else explainer
    source = anonymizer.manager_.adapt(wrapped, context)
    is_asked = _is_asked(explainer, source, anonymizer)
    if sample_explainer and explainer is not None and not is_asked:
        anonymizer.explainer_sample_ = sample_of(source, anonymizer, sample_explainer)
    return ProtectedExplainer(
        wrapped, source, anonymizer, logger or False, groups, is_asked=is_asked
    )


def _prototypes_of(method: str | Protector | KAnonymizer | DPPrototypes) -> DPPrototypes | None:
    """Return the prototypes that a method is or names; None for any other method.

    Their modules are imported only where a method may be one, as the import takes time.
    """
    if isinstance(method, KAnonymizer) or (isinstance(method, str) and method != "dp"):
        return None
    from cfk_plugin.dp import DPPrototypes

    if isinstance(method, DPPrototypes):
        return method
    return DPPrototypes() if method == "dp" else None


def _refuse_what_is_not_used(is_given: Mapping[str, bool], reason: str) -> None:
    """Raise `PolicyError` if an argument is given that the method does not use."""
    names = [name for name, given in is_given.items() if given]
    if names:
        raise PolicyError(f"leave out {', '.join(names)}: {reason}")


def _policy_of(
    policy: PrivacyPolicy | None, k: int | None, population: Population
) -> PrivacyPolicy | None:
    """Return the policy that `policy` or `k` names; None if neither does."""
    if k is None:
        return policy
    if policy is not None:
        raise PolicyError("policy and k both say how many people; write k into the policy alone")
    return replace(population.policy or PrivacyPolicy(), k=k)


def no_explainer(queries: pd.DataFrame) -> pd.DataFrame:
    """Stand in for an explainer where the catalogue answers alone."""
    return queries.head(0)


def _is_asked(explainer: object, source: CounterfactualSource, anonymizer: KAnonymizer) -> bool:
    """Return True if the explainer is asked for counterfactuals.

    A lookup guarantee protects what it returns. A catalogue's answers start at it only if its
    adapter declares that no answer depends on a single row: otherwise somebody who chooses the
    queries could read out single training rows.
    """
    if promise_of(anonymizer.policy_.guarantee).releases_counterfactuals:
        if explainer is None:
            raise PolicyError(
                "without an explainer, answers come from a catalogue; choose"
                ' PrivacyPolicy(guarantee="catalogue")'
            )
        return True
    knows_groups = anonymizer.guarantee_.knows_group_of_counterfactuals
    return explainer is not None and knows_groups and depends_on_rows(source) == "no"


def warm_up() -> frozenset[Path | None]:
    """Compile what protection needs, for every later process of this machine; `cfk warm-up` does
    the same.

    Otherwise the first process that protects spends some seconds on it. Returns the folders that
    hold the compiled code; None is among them if some of it could not be kept because no folder is
    writable.
    """
    from cfk_plugin.dp import DPPrototypes, infer_domains

    random = np.random.default_rng(0)
    table = pd.DataFrame(
        random.integers(0, (30, 4, 9, 60), (90, 4)), columns=["age", "place", "pay", "person"]
    )
    schema = Schema.from_frame(
        table, quasi_identifiers=["age", "place"], nominal=["place"], subject="person"
    )
    population = Population.from_frame(table, schema)
    settings: list[tuple[GuaranteeName, str | Protector]]
    settings = [
        ("catalogue", "auto"),
        ("lookup", "exact"),
        ("lookup", ExactProtector(node_limit=1)),
    ]
    with warnings.catch_warnings(action="ignore"):
        for guarantee, method in settings:
            anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee=guarantee), method=method)
            anonymizer.fit(
                population, model=lambda rows: (rows["pay"] > 4).to_numpy(), desired=True
            )
            anonymizer.transform(table[table["pay"] > 4].head(5))
    rows, _ = distinct_rows(population)  # transform() compares all rows where there are so few
    rows.search(rows.take(np.arange(3)))
    with warnings.catch_warnings(action="ignore"):
        drawn = DPPrototypes(rows=90, model_access="public", seed=0)  # which guarantees nothing
        public = Population.from_frame(table, infer_domains(table, schema))
        drawn.fit(public, model=lambda rows: (rows["pay"] > 4).to_numpy(), desired=True).generate(
            table.head(9)
        )
    return frozenset(kernel._cache.folder for kernel in KERNELS if kernel.signatures)


def protected(**options: Any) -> Callable[[Any], ProtectedExplainer]:
    """Decorate a function that explains, so that only protected explanations leave it.

    Parameters
    ----------
    **options
        Those of `protect`: ``model`` and ``population`` at least.

    Returns
    -------
    callable
        The decorator. What it returns is called as the explainer was and gives `Explanations`.

    Raises
    ------
    CFKError
        As `protect`, where the decorated function is defined.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import Population, PrivacyPolicy, Schema, protected
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> population = Population.from_frame(train, schema)
    >>> policy = PrivacyPolicy(k=2)
    >>> @protected(
    ...     model=lambda x: x.salary > 50, desired=True, population=population, policy=policy
    ... )
    ... def explain(queries):
    ...     return train.iloc[[0] * len(queries)]
    >>> explain(train.iloc[[2]])[0].certificate.k
    2
    """
    return partial(protect, **options)
