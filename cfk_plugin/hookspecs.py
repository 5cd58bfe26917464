"""The contract for authors of plugins, adapters and protectors.

See docs/how-to/write-an-adapter.md.

A plugin may add protection, never weaken it: whatever it returns is checked by host code. It runs
inside the data holder's process and sees training rows, which it must keep out of logs, exceptions
and files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
import pandas as pd
import pluggy
from numpy.typing import NDArray

from cfk_plugin.adapting import AnswerRequest, CounterfactualBatch
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import AdapterError

NativeStatus = Literal["native", "near-native", "native-qi", "synthetic"]
"""Equal to a training row; closer than the calibrated tolerance; equal on the quasi-identifiers;
none of these.
"""

PROJECT = "cfk_plugin"
"""Name of the markers' project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
"""Marks a hook's specification."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


@dataclass(frozen=True, slots=True)
class AdaptContext:
    """What an adapter needs to know of the data."""

    features: tuple[str, ...]  # columns that a counterfactual has, in the training table's order
    target: str | None = None  # label column, to be left out of what the explainer returns
    # the model's labels, in its order, for explainers that name a position
    classes: tuple[Any, ...] | None = None
    # label, `DesiredRange` or `DesiredSet` that is asked for; None where the query decides
    desired: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """What plugins are told of one explanation. Holds no attribute's value, so it may be logged."""

    status: str  # "released" or "withheld"
    reason: str | None = None  # why it was withheld, a key of `WITHHOLDING_REASONS`
    method: str  # protector
    # people in the region; None when withheld or a prototype, like the next two
    k: int | None = None
    ncp: float | None = None
    pureness: float | None = None
    policy_hash: str
    # keyed fingerprint; none of a prototype: no epsilon covers the exact table it is made of
    population: str = ""


@hookspec(firstresult=True)
def cfk_adapt(explainer: Any, context: AdaptContext) -> CounterfactualSource | None:
    """Return a source of counterfactuals for an explainer that this plugin knows, or None.

    The first answer wins.

    Decide by the explainer's type or attributes, and import its library only once it is yours. Call
    nothing of the explainer here, and change nothing of it. `AdapterError` says that the explainer
    is yours and cannot be used as it is; every other exception is reported as a broken plugin.

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
def cfk_register_protectors() -> Mapping[str, Callable[[], Protector]]:
    """Return protectors by name, for ``method="name"``: each a callable without arguments that
    makes one.

    Two plugins with one name are an error, and the built-in names are taken.

    Returns
    -------
    mapping of str to callable
    """


@hookspec
def cfk_detect(frame: pd.DataFrame, population: Population) -> Sequence[NativeStatus | None]:
    """Say for every counterfactual whether it is a training row, or nearly one.

    The worst finding of all counts.

    Parameters
    ----------
    frame : DataFrame
        Counterfactuals in raw feature space; the plugin's own copy.
    population : Population
        Must not be changed.

    Returns
    -------
    sequence of str or None
        One finding per row, None for no opinion. An answer of the wrong length or an exception
        stops the release.
    """


@hookspec
def cfk_released(record: ReleaseRecord) -> None:
    """Take note of one explanation after it was released or withheld; nothing can be changed any
    more.

    Parameters
    ----------
    record : ReleaseRecord
    """


Progress = Callable[[int, int], None]
"""Called with (done, total) counterfactuals."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProtectionRequest:
    """Counterfactuals to protect in one go. Host side only.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    rows : shape (n, n_features)
        The counterfactuals, in the codes of ``population.row_codes``.
    has_outcome : callable
        From positions of counterfactuals, shape (m,), and encoded rows, shape (m, n_features), to
        whether the rows have the outcome that the counterfactuals reach, shape (m,). The model is
        asked about each row once.
    random_state : int
        For protectors that draw random numbers.
    progress : callable, optional
    """

    population: Population
    policy: PrivacyPolicy
    rows: NDArray[np.float64]
    has_outcome: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.bool_]]
    random_state: int = 0
    progress: Progress | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, repr=False)
class Proposal:
    """A protector's answer for one counterfactual; verification recounts everything it says."""

    region: Region | None  # None when no region with enough people was found
    optimal: bool = False  # proved that no better region exists, for the policy's objective
    # proven bound on how much lower the objective's NCP could be; None for a heuristic
    gap: float | None = None

    def __repr__(self) -> str:
        # not verified yet: may be somebody's row
        region = "None" if self.region is None else "withheld"
        return f"Proposal(region={region}, optimal={self.optimal}, gap={self.gap})"


class Protector(Protocol):
    """Turns counterfactuals into regions. A plugin may bring its own; its regions are verified."""

    name: str

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return one proposal per counterfactual of the task, in order."""
        ...


DependsOnRows = Literal["yes", "no", "unknown"]
"""Whether an explainer's answers depend on single training rows. "no": rows act only through the
explained model and through ranges and categories that were declared. "unknown" counts as "yes".
"""


@runtime_checkable
class AnsweringSource(Protocol):
    """A source whose own methods can be answered without calling the explainer."""

    def read_request(
        self, method: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call of one of `methods`, or of ``generate`` for tables given to ``explain``.

        Raise an `AdapterError` for what only the explainer can answer, and for options whose effect
        a caller would expect and a catalogue cannot promise, such as a least probability. Name in
        `ignored` the options that only steer the explainer's search.
        """
        ...

    def build(self, method: str, request: AnswerRequest, explanations: Any) -> Any:
        """Build what the method returns from `Explanations`, `n_answers` for each query."""
        ...


def depends_on_rows(source: object) -> DependsOnRows:
    """Return what an adapter declares; "unknown" where it declares nothing."""
    declared = getattr(source, "depends_on_rows", "unknown")
    if declared not in get_args(DependsOnRows):
        choices = ", ".join(get_args(DependsOnRows))
        raise AdapterError(f"an adapter's depends_on_rows must be one of {choices}")
    return cast("DependsOnRows", declared)


@runtime_checkable
class CounterfactualSource(Protocol):
    """An explainer as an adapter presents it.

    Knows how to call it and how to read it; nothing of privacy.

    It may have ``forwarded``, names of further attributes and methods that a protected explainer
    passes on unchanged: they must hold no value of a row, and lead to none. It may have
    ``depends_on_rows``, see `DependsOnRows`; without it, the explainer counts as one whose answers
    depend on single rows. `AnsweringSource` says how its methods are answered from a catalogue.
    """

    name: str  # short name of the generator, for logs
    # its answers may be training rows or lightly changed ones, whatever a distance says
    instance_based: bool

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask for counterfactuals of the queries.

        Changes neither queries nor explainer nor random state.
        """
        ...

    @property
    def methods(self) -> Mapping[str, Any]:
        """The explainer's own methods that return counterfactuals, by name; they keep it when they
        are protected.

        Each takes what the method takes and returns ``(batch, native_result, queries)``.
        """
        ...

    def restore(self, native: Any, explanations: Any) -> Any:
        """Rebuild the explainer's own result type from `Explanations`; no row of `native` may
        survive.
        """
        ...
