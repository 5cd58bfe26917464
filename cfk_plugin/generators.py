"""Explainers by name, made of a training table and a model: what audits that train again need."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from cfk_plugin.errors import InputError, MissingDependencyError, PluginError, quiet

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

GROUP = "cfk_plugin.generators"
"""Name of the entry-point group."""

log = logging.getLogger("cfk_plugin")


class RawExplainer(Protocol):
    """An explainer as a factory makes it. What it answers may be training rows: it must be protected."""

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return one row per query, in the queries' index; missing values where it found none."""
        ...


class Factory(Protocol):
    """Makes an explainer; a function that an entry point of the group names.

    It may have an attribute ``needs``: libraries that must be installed, import name to what to do where one is not.
    """

    def __call__(
        self, train: pd.DataFrame, labels: NDArray[Any], model: Any, desired: Any = "opposite", seed: int = 0
    ) -> RawExplainer:
        """Make an explainer.

        Parameters
        ----------
        train : DataFrame
            Training rows, features alone.
        labels : array, shape (len(train),)
            Their true outcomes, of the model's classes.
        model : classifier
            Fitted on such rows, as scikit-learn's are: ``predict``, and for some ``predict_proba`` and ``classes_``.
        desired : "opposite", label, or callable
            The label wanted; any label but the query's own; or a function from labels to booleans. Some take less.
        seed : int
        """
        ...


def generators() -> tuple[str, ...]:
    """Return the names of the generators that can be used here: installed, with the libraries that they need."""
    usable = []
    for name, point in sorted(_points().items()):
        try:
            if not _missing(_load(point)):
                usable.append(name)
        except PluginError as error:
            log.warning("%s", error)
    return tuple(usable)


def generator(name: str) -> Factory:
    """Return what makes an explainer, by its name.

    Parameters
    ----------
    name : str
        ``nearest``, ``nice``, ``dice-random``, ``dice-kdtree``, ``dice-genetic``, ``scfe``, ``growing-spheres``,
        ``c-chvae``, ``face``, or what other distributions bring.

    Returns
    -------
    callable
        See `Factory`.

    Raises
    ------
    InputError
        If no installed distribution has a generator of this name.
    MissingDependencyError
        If a library that it needs is not installed.
    PluginError
        If it cannot be loaded, or two distributions have one of this name.
    """
    points = _points()
    if name not in points:
        known = ", ".join(sorted(points)) or "none: install the package cfk-plugin"
        raise InputError(f"no generator {name!r}; installed are {known}")
    factory = _load(points[name])
    if missing := _missing(factory):
        advice = "; ".join(missing.values())
        raise MissingDependencyError(f"the generator {name} needs {' and '.join(missing)}: {advice}")
    return factory


def _points() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name].value != point.value:
            raise PluginError(f"two installed distributions bring a generator named {point.name}; remove one")
        found[point.name] = point
    return found


def _load(point: EntryPoint) -> Factory:
    what = f"the generator {point.name} ({point.value}) cannot be loaded"
    with quiet(what, PluginError):
        factory = point.load()
    if not callable(factory):
        raise PluginError(f"{what} (no function)")
    loaded: Factory = factory
    return loaded


def _missing(factory: Factory) -> Mapping[str, str]:
    """Return the libraries that are not installed, import name to what to do."""
    needs: Mapping[str, str] = getattr(factory, "needs", {})
    return {library: advice for library, advice in needs.items() if find_spec(library) is None}
