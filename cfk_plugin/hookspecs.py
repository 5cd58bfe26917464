"""The hooks and types for authors of plugins; see docs/how-to/write-an-adapter.md.

A plugin can add protection but never weaken it, because the host checks every result. It runs in
the data holder's process and sees training rows: it must not write their values to logs, exceptions
or files.
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
"""Whether a counterfactual equals a training row: on all columns, within the calibrated tolerance,
only on the quasi-identifiers, or not.
"""

PROJECT = "cfk_plugin"
"""Name of the markers' project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
"""Marks a hook's specification."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


@dataclass(frozen=True, slots=True)
class AdaptContext:
    """The data and the model, as an adapter needs to know them."""

    features: tuple[str, ...]  # columns of a counterfactual, in the training table's order
    target: str | None = None  # label column, which the adapter removes from the explainer's rows
    classes: tuple[Any, ...] | None = None  # the model's labels, in its order
    # label, `DesiredRange` or `DesiredSet`; None if it depends on the query's own outcome
    desired: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """Facts about one explanation for `cfk_released`. It contains no value of a row, so a plugin
    may log it.
    """

    status: str  # "released" or "withheld"
    reason: str | None = None  # a key of `WITHHOLDING_REASONS`, if withheld
    method: str  # name of the protector
    # k (least number of people in the region), ncp and pureness are None for prototypes and
    # withheld explanations
    k: int | None = None
    ncp: float | None = None
    pureness: float | None = None
    policy_hash: str
    # keyed fingerprint of the training table; empty for a prototype, as no epsilon covers it
    population: str = ""


@hookspec(firstresult=True)
def cfk_adapt(explainer: Any, context: AdaptContext) -> CounterfactualSource | None:
    """Return a source of counterfactuals if this plugin can adapt the explainer, or None.

    The first source that a plugin returns is used.

    Decide by the explainer's type or attributes. Import its library only if the explainer is yours;
    do not call or change the explainer here. Raise `AdapterError` if the explainer is yours and
    cannot be used as it is. Any other exception is reported as a broken plugin.

    Parameters
    ----------
    explainer : object
        The first argument of ``protect``.
    context : AdaptContext

    Returns
    -------
    CounterfactualSource or None
    """


@hookspec
def cfk_register_protectors() -> Mapping[str, Callable[[], Protector]]:
    """Return this plugin's protectors, which users choose by ``method="name"``.

    Each name maps to a callable without arguments that makes the protector. A name that another
    plugin or a built-in protector uses is an error.

    Returns
    -------
    mapping of str to callable
    """


@hookspec
def cfk_detect(frame: pd.DataFrame, population: Population) -> Sequence[NativeStatus | None]:
    """Judge for each counterfactual whether it equals a training row, or nearly does.

    The worst of all plugins' findings and the host's own finding is used.

    Parameters
    ----------
    frame : DataFrame
        Counterfactuals in their original units; a copy, which the plugin may change.
    population : Population
        The training rows; must not be changed.

    Returns
    -------
    sequence of str or None
        One `NativeStatus` for each row of `frame`, or None for no opinion. If the length is wrong
        or the plugin raises, nothing is released.
    """


@hookspec
def cfk_released(record: ReleaseRecord) -> None:
    """Receive the record of one explanation after it was released or withheld.

    Parameters
    ----------
    record : ReleaseRecord
    """


Progress = Callable[[int, int], None]
"""Called with (done, total) counterfactuals."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProtectionRequest:
    """Counterfactuals to protect together. Never leaves the host.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    rows : array of shape (n_counterfactuals, n_features)
        The counterfactuals, in the codes of ``population.row_codes``.
    has_outcome : callable
        Takes positions of counterfactuals, shape (m,), and encoded rows, shape (m, n_features).
        Returns for each row whether the model gives it the outcome that the counterfactual at this
        position reaches, shape (m,). The model labels each row only once.
    random_state : int
        Seed, for protectors that draw random numbers.
    progress : callable, optional
        See `Progress`.
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
    """A protector's region for one counterfactual. The host recounts it before a release."""

    region: Region | None  # None if the protector found no region with enough people
    optimal: bool = False  # whether no other region is better, by proof
    # proven bound on how much lower the NCP of another region could be; None for a heuristic
    gap: float | None = None

    def __repr__(self) -> str:
        # the region is not recounted yet, and may be the row of one person
        region = "None" if self.region is None else "withheld"
        return f"Proposal(region={region}, optimal={self.optimal}, gap={self.gap})"


class Protector(Protocol):
    """Generalises counterfactuals to regions. Plugins may register their own protectors."""

    name: str

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return one proposal for each row of the request, in order."""
        ...


DependsOnRows = Literal["yes", "no", "unknown"]
"""Whether an explainer's answers depend on single training rows. "no" means that rows matter only
through the explained model, and through ranges and categories that the user declared. "unknown"
counts as "yes".
"""


@runtime_checkable
class AnsweringSource(Protocol):
    """A source that can answer its methods from a catalogue, without calling the explainer."""

    def read_request(
        self, method: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call of one of `methods`, or of ``explain``, whose `method` is ``"generate"``.

        `args` and `named` are the positional and the named arguments of the call.

        Raise `AdapterError` if only the explainer can answer the call, or if an option has an
        effect that callers rely on and a catalogue cannot promise, such as a least probability.
        List in `ignored` the options that only steer the explainer's search.
        """
        ...

    def build(self, method: str, request: AnswerRequest, explanations: Any) -> Any:
        """Build the method's result from `Explanations`, which has `n_answers` for each query."""
        ...


def depends_on_rows(source: object) -> DependsOnRows:
    """Return the adapter's `depends_on_rows`, or "unknown" if it has none."""
    declaration = getattr(source, "depends_on_rows", "unknown")
    if declaration not in get_args(DependsOnRows):
        choices = ", ".join(get_args(DependsOnRows))
        raise AdapterError(f"an adapter's depends_on_rows must be one of {choices}")
    return cast("DependsOnRows", declaration)


@runtime_checkable
class CounterfactualSource(Protocol):
    """One explainer behind an adapter: calls it, reads its results and rebuilds its result type.

    Two attributes are optional. ``forwarded`` has the names of further attributes and methods that
    a protected explainer passes on unchanged: they must not contain or lead to a value of a row.
    ``depends_on_rows`` is described at `DependsOnRows`. To answer the explainer's methods from a
    catalogue, implement `AnsweringSource` too.
    """

    name: str  # short name of the explainer, for logs
    # whether its answers may be training rows, or such rows with small changes
    instance_based: bool

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Call the explainer for the queries.

        Must not change the queries, the explainer or the global random state.
        """
        ...

    @property
    def methods(self) -> Mapping[str, Any]:
        """The explainer's own methods that return counterfactuals, by name.

        Each callable has the arguments of the method and returns ``(batch, native_result,
        queries)``.
        """
        ...

    def restore(self, native: Any, explanations: Any) -> Any:
        """Rebuild the explainer's own result type from `Explanations`.

        `native` is the explainer's own result. Copy no value of a row from it.
        """
        ...
