"""The hooks of `cfk_plugin`: what a plugin may add, who wins, and what it may not do.

A plugin is a module or an object whose functions carry the marker `hookimpl`. It is found through the entry-point
group ``cfk_plugin`` or passed as ``plugins=[...]``. A function may take any subset of a hook's arguments, by name.

Plugins are asked in this order: those passed explicitly, the last one first; then installed ones by third parties;
then the built-in ones. ``@hookimpl(tryfirst=True)`` and ``trylast=True`` change that.

A plugin may add protection, never weaken it. Whatever it returns is checked by host code that is no plugin: every
region is recounted against the population, and a result that does not hold is suppressed. A plugin runs inside the
data holder's process and sees training rows: install it with the care that any code there deserves. It must keep
them out of logs, exceptions and files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from cfk_plugin.counterfactual import Entry, GeneralizedCounterfactual, Suppressed
from cfk_plugin.prototype import PrototypeCounterfactual

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.counterfactual import Finding
    from cfk_plugin.population import Population
    from cfk_plugin.protection.base import Proposal, Protector, Task
    from cfk_plugin.source import CounterfactualSource

PROJECT = "cfk_plugin"
"""Name of the markers' project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
"""Marks a hook's specification."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


@dataclass(frozen=True, slots=True)
class AdaptContext:
    """What an adapter needs to know of the data.

    Attributes
    ----------
    features : tuple of str
        Columns that a counterfactual has, in the training table's order.
    target : str, optional
        Label column, to be left out of what the explainer returns.
    classes : tuple, optional
        The labels of the model that is protected, in its order, for explainers that name one by its position.
    """

    features: tuple[str, ...]
    target: str | None = None
    classes: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class RawMethod:
    """A method of an explainer's class that gives out counterfactuals as they are, for whoever counts its calls.

    Attributes
    ----------
    module, owner, name : str
        Module, class and method. Names, so that naming it imports nothing.
    count : callable
        Says of what the method returned how many counterfactuals are in it.
    """

    module: str
    owner: str
    name: str
    count: Callable[[Any], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """One explanation as a notification tells it. Holds no attribute's value, so it may be logged.

    Attributes
    ----------
    status : {"released", "suppressed"}
    reason : str, optional
        Why it was suppressed, a key of `SUPPRESSION_REASONS`.
    method : str
        Protector.
    k : int, optional
        People in the region; None when suppressed or a prototype, like the next two.
    ncp, pureness : float, optional
        Information loss and validity of the region.
    policy_hash : str
        SHA-256 of the policy.
    population : str
        Keyed fingerprint of the population. Empty for a prototype: it is computed from the exact table, which is
        more than any epsilon covers.
    """

    status: str
    reason: str | None = None
    method: str
    k: int | None = None
    ncp: float | None = None
    pureness: float | None = None
    policy_hash: str
    population: str = ""

    @classmethod
    def of(cls, entry: Entry, method: str, policy_hash: str, population: str = "") -> ReleaseRecord:
        """Describe an explanation without its values."""
        certificate = entry.certificate if isinstance(entry, GeneralizedCounterfactual) else None
        return cls(
            status=entry.status,
            reason=entry.reason if isinstance(entry, Suppressed) else None,
            method=method,
            k=certificate.k if certificate else None,
            ncp=certificate.ncp if certificate else None,
            pureness=certificate.pureness if certificate else None,
            policy_hash=policy_hash,
            population="" if isinstance(entry, PrototypeCounterfactual) else population,
        )


@hookspec(firstresult=True)
def cfk_adapt(explainer: Any, context: AdaptContext) -> CounterfactualSource | None:
    """Return a source of counterfactuals for an explainer that this plugin knows, or None.

    The first answer that is not None wins. The adapter for any callable and for any object with an ``explain``
    method is asked last.

    Decide by the explainer's type or attributes, and import its library only once it is yours: an explainer of a
    library can only exist after that was imported. Call nothing of the explainer here, and change nothing of it.
    `AdapterError` says that the explainer is yours and cannot be used as it is; every other exception is reported
    as a broken plugin, by class and without its text.

    Parameters
    ----------
    explainer : object
        What the user gave to ``protect``.
    context : AdaptContext

    Returns
    -------
    CounterfactualSource or None
    """


@hookspec
def cfk_raw_methods() -> Sequence[RawMethod]:
    """Name the methods by which people use an explainer without protection, so that their use can be observed.

    All plugins are asked. A method that another one calls in turn needs no mention. Import nothing here: a class
    whose module is not there, or is another one in the installed version, is passed over.

    Returns
    -------
    sequence of RawMethod
    """


@hookspec
def cfk_register_protectors() -> Mapping[str, Callable[[], Protector]]:
    """Return protectors by name: each a callable without arguments that makes one.

    All plugins are asked; ``method="name"`` selects. Two plugins with one name are an error, and the built-in
    names are taken. What a protector proposes is recounted before release like any other.

    Returns
    -------
    mapping of str to callable
    """


@hookspec
def cfk_detect(frame: pd.DataFrame, population: Population) -> Sequence[Finding | None]:
    """Say of every counterfactual whether it is a training row, or nearly one.

    All plugins are asked besides the host's own detector, and the worst finding of each row counts: "native", then
    "near-native", "native-qi", "synthetic". So a plugin can raise an alarm and cannot call one off. An exception
    or an answer of the wrong length stops the release.

    Parameters
    ----------
    frame : DataFrame
        Counterfactuals in raw feature space; the plugins' own copy.
    population : Population
        Must not be changed.

    Returns
    -------
    sequence of str or None
        One finding per row, None for no opinion.
    """


@hookspec(firstresult=True)
def cfk_protect(task: Task) -> Sequence[Proposal] | None:
    """Protect counterfactuals instead of the policy's protector, or decline with None.

    The first answer that is not None wins. Every proposal is verified like any other; one that does not hold is
    suppressed. An exception or an answer of the wrong length stops the release.

    Parameters
    ----------
    task : Task
        Must not be changed.

    Returns
    -------
    sequence of Proposal, or None
        One proposal per counterfactual of the task, in order.
    """


@hookspec
def cfk_released(record: ReleaseRecord) -> None:
    """Take note of one explanation that was released or suppressed.

    All plugins are told, after the decision; nothing can be changed any more. An exception is logged by its class
    and does not touch the release.

    Parameters
    ----------
    record : ReleaseRecord
    """
