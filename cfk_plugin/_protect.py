"""The function `protect`, and its decorator `protected`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from sklearn.base import clone

from cfk_plugin.data.model import checked_later, thresholded
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import InputError, PolicyError, require
from cfk_plugin.hookspecs import AdaptContext, CounterfactualSource, Protector, depends_on_rows
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.explainer import ProtectedExplainer
from cfk_plugin.release.sampling import sample_of
from cfk_plugin.tracking.journal import JOURNAL
from cfk_plugin.tracking.logger import logger_of

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
    previous: Catalogue | str | Path | None = None,
    method: str | Protector | KAnonymizer | DPPrototypes = "auto",
    track: bool | str = False,
    strict: bool = False,
    journal: str | Path = JOURNAL,
    plugins: Sequence[object] = (),
    groups: str | None = None,
    sample_explainer: int = 0,
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
        Least number of people behind an explanation: short for ``policy=PrivacyPolicy(k=k)``.
    desired : label, set of labels, (low, high), "opposite" or callable
        The outcome that counterfactuals reach; by default any other than the query's own. See
        `KAnonymizer.fit`.
    threshold : float, optional
        For a model that returns probabilities: from this value on, the outcome is 1, or the second
        class.
    later : sequence of models, optional
        Models that were trained again. Answers of the catalogue have an outcome that these give
        too; see `KAnonymizer.fit`. Prototypes do not use them.
    previous : Catalogue or path, optional
        The catalogue that this one follows; see `KAnonymizer.fit`. Prototypes do not use it.
    method : str, Protector, KAnonymizer or DPPrototypes
        A name or a protector: see `KAnonymizer`. A `KAnonymizer` is used with its own settings,
        such as `random_state`; the object itself is not fitted or changed. "dp",
        or `DPPrototypes` with settings of your own: answers are differentially private prototypes,
        whatever the explainer would find. A `KAnonymizer` has its own policy and plugins, so
        that `policy`, `k` and `plugins` are refused beside it. Prototypes do not use `policy`, `k`,
        `later` and `previous`, which are refused beside them.
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
        How many refused people of the population the explainer explains here if it is not asked
        for answers; by default none. Runs then say how often it returns training rows. It gets
        their rows, so leave it out if it sends queries elsewhere or keeps them. No further person
        is explained after ten seconds, but a search that is running ends first, and one of DiCE's
        can take minutes. What it returns is compared with the rows and forgotten.

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
            "previous": previous is not None,
        }
        _refuse_what_is_not_used(
            refused, "prototypes have no policy, no k, no later models and no previous catalogue"
        )
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
        anonymizer = clone(method)
    else:
        anonymizer = KAnonymizer(
            policy=_policy_of(policy, k),
            method=cast("str | Protector", method),  # prototypes have answered above
            plugins=plugins,
        )
    anonymizer.fit(population, model=model, desired=desired, later=later, previous=previous)
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


def _policy_of(policy: PrivacyPolicy | None, k: int | None) -> PrivacyPolicy | None:
    """Return the policy that `policy` or `k` names; None if neither does."""
    if k is None:
        return policy
    if policy is not None:
        raise PolicyError("policy and k both say how many people; write k into the policy alone")
    return PrivacyPolicy(k=k)


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
    return explainer is not None and depends_on_rows(source) == "no"


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
