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
    """Return an explainer that answers only with protected explanations.

    Each released explanation has a region that contains at least k people, or it is a
    differentially private prototype. `PrivacyPolicy.not_stopped` lists the attacks that a policy
    does not stop. Code in the same process can reach the unprotected explainer.

    Parameters
    ----------
    explainer : object, optional
        A DiCE explainer, a NICE explainer, a function from queries to counterfactuals, an object
        with such a method ``explain``, or an object that the adapter of a plugin can read. Without
        it, answers come from the catalogue or the prototypes.
    model : object with ``predict``, or callable
        The explained model. It returns labels, or numbers if `desired` is a range or `threshold`
        is set.
    population : Population
        The training rows, among which people are counted.
    policy : PrivacyPolicy, optional
        By default ``PrivacyPolicy()``, with k = 10.
    k : int, optional
        Least number of people behind an explanation: short for ``policy=PrivacyPolicy(k=k)``.
    desired : label, set of labels, (low, high), "opposite" or callable
        The outcome that counterfactuals reach. By default, any outcome other than the query's. See
        `KAnonymizer.fit`.
    threshold : float, optional
        For a model that returns probabilities: the outcome is 1, or the second class, if the
        probability is at least this value.
    later : sequence of models, optional
        Models that were trained again. Answers of the catalogue have the desired outcome under
        these models too; see `KAnonymizer.fit`.
    previous : Catalogue or path, optional
        The catalogue that the new one replaces; see `KAnonymizer.fit`.
    method : str, Protector, KAnonymizer or DPPrototypes
        The name of a method, or a protector: see `KAnonymizer`. With "dp" or `DPPrototypes`, every
        answer is a differentially private prototype; leave out `policy`, `k`, `later` and
        `previous` then. A `KAnonymizer` brings its settings, such as `random_state`; leave out
        `policy`, `k` and `plugins` then. `protect` fits a copy and does not change the object.
    track : bool or str
        Whether to log every result to MLflow before it is returned, or the name of the experiment
        to log to.
    strict : bool
        Whether to withhold a result if its record can be written neither to MLflow nor to the
        journal. By default, the result is returned with a warning, and the next record counts the
        explanations without one.
    journal : path
        File for records that MLflow does not accept, by default in the working folder. A warning
        says so once; ``cfk track`` sends the records later.
    plugins : sequence
        Further plugins, in addition to the installed ones.
    groups : str, optional
        Column of the queries that divides applicants into groups in the logged runs, for example
        ``sex``. It need not be a feature. See `Explanations.by_group`.
    sample_explainer : int
        If the explainer is not asked for answers, the largest number of people for whom it is
        tested here; by default 0. They are drawn from the people of the population without the
        desired outcome. The explainer explains them, and runs say how often it returns training
        rows; its answers are not stored. Leave this out if the explainer stores queries or sends
        them to another machine. The test starts no search after ten seconds, but a single search
        of DiCE can take minutes.

    Returns
    -------
    ProtectedExplainer
        Has the explainer's own methods, and `explain`.

    Raises
    ------
    CFKError
        If policy, population, model and explainer do not fit together (see `KAnonymizer.fit`),
        or `strict` is set without `track`.

    See Also
    --------
    protected : The same as a decorator.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import Population, Schema, protect
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> population = Population.from_frame(train, schema)
    >>> private = protect(model=lambda x: x.salary > 50, population=population, k=2, desired=True)
    >>> print(private.explain(pd.DataFrame({"age": [26], "salary": [30]})))
    1 explanation: 1 released, 0 withheld
    query   status k  ncp pureness   age salary
        0 released 2 0.08        1 24–26     51
    """
    check_population(population)
    sample_explainer = whole_number("sample_explainer", sample_explainer, 0)
    if groups is not None:
        require("groups", groups, str, "name one column of the queries")
    logger = logger_of(track, strict=strict, journal=journal)
    if strict and logger is None:
        raise InputError("strict=True withholds results that cannot be logged; add track=True")
    model = thresholded(model, threshold)
    later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
    context = AdaptContext(population.schema.features, population.schema.target)
    prototypes = _prototypes_of(method)
    if prototypes is not None:
        is_set = {
            "policy": policy is not None,
            "k": k is not None,
            "later": len(later) > 0,
            "previous": previous is not None,
        }
        _check_unused(
            is_set, "prototypes have no policy, no k, no later models and no previous catalogue"
        )
        wrapped = no_explainer if explainer is None else explainer
        source = load_plugins(plugins).adapt(wrapped, context)
        fitted = prototypes.fit(population, model, desired)
        return ProtectedExplainer(wrapped, source, fitted, logger or False, groups, is_asked=False)
    if isinstance(method, KAnonymizer):
        is_set = {
            "policy": policy is not None,
            "k": k is not None,
            "plugins": len(plugins) > 0,
        }
        _check_unused(is_set, "the KAnonymizer in method has its own")
        anonymizer = clone(method)
    else:
        anonymizer = KAnonymizer(
            policy=_policy_of(policy, k),
            method=cast("str | Protector", method),  # prototypes have returned above
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
    """Return the prototypes for a method that is `DPPrototypes` or "dp", otherwise None.

    The import takes time, and is skipped for other methods.
    """
    if isinstance(method, KAnonymizer) or (isinstance(method, str) and method != "dp"):
        return None
    from cfk_plugin.dp import DPPrototypes

    if isinstance(method, DPPrototypes):
        return method
    return DPPrototypes() if method == "dp" else None


def _check_unused(is_set: Mapping[str, bool], reason: str) -> None:
    """Raise `PolicyError` if the caller sets an argument that the method does not use."""
    names = [name for name in is_set if is_set[name]]
    if names:
        raise PolicyError(f"leave out {', '.join(names)}: {reason}")


def _policy_of(policy: PrivacyPolicy | None, k: int | None) -> PrivacyPolicy | None:
    """Return the policy, or a policy with this k; None if both are None."""
    if k is None:
        return policy
    if policy is not None:
        raise PolicyError("policy and k both set the number of people; write k only in the policy")
    return PrivacyPolicy(k=k)


def no_explainer(queries: pd.DataFrame) -> pd.DataFrame:
    """Return an empty table: the explainer of a `protect` call without one."""
    return queries.head(0)


def _is_asked(explainer: object, source: CounterfactualSource, anonymizer: KAnonymizer) -> bool:
    """Return True if the explainer is asked for counterfactuals.

    With the lookup guarantee, its counterfactuals are generalised. With a catalogue, the search
    starts at its counterfactuals only if its adapter declares that they depend on no single row:
    otherwise an attacker who chooses the queries could learn single training rows.
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
    """Decorate a function from queries to counterfactuals, so that it returns only protected
    explanations.

    Parameters
    ----------
    **options
        Arguments of `protect`; ``model`` and ``population`` are required.

    Returns
    -------
    callable
        The decorator. The decorated function takes the same queries and returns `Explanations`.

    Raises
    ------
    CFKError
        As `protect`, at the definition of the decorated function.

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
