"""Finding, loading and asking plugins and generators.

A manager belongs to one run; nothing is loaded at import.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol, get_args

import pandas as pd
import pluggy
from numpy.typing import NDArray

import cfk_plugin.hookspecs
from cfk_plugin.data.population import Population
from cfk_plugin.errors import AdapterError, InputError, MissingDependencyError, PluginError, quiet
from cfk_plugin.hookspecs import (
    PROJECT,
    AdaptContext,
    CounterfactualSource,
    NativeStatus,
    Protector,
    ReleaseRecord,
)

BUILT_IN = "cfk-plugin"
DISABLE = "CFK_DISABLE_PLUGINS"
_BY_SEVERITY: tuple[NativeStatus | None, ...] = (None, *reversed(get_args(NativeStatus)))

log = logging.getLogger("cfk_plugin")


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A loaded plugin."""

    name: str  # of the entry point, or of the module or class that was passed
    distribution: str | None  # installed with; None for one that was passed
    version: str  # of the distribution, else the plugin's ``__version__`` or "unknown"
    hooks: tuple[str, ...]


def load_plugins(
    plugins: Iterable[Any] = (), disable: Iterable[str] = (), entry_points: bool = True
) -> PluginManager:
    """Load plugins for one run."""
    manager = PluginManager()
    if entry_points:
        disabled = {*disable, *os.environ.get(DISABLE, "").split(",")}
        for point, *about in _installed({_normal(name) for name in disabled if name.strip()}):
            manager.load(point, *about)
    if not isinstance(plugins, Iterable):
        raise InputError(f"plugins must be a list of plugins, got {type(plugins).__name__}")
    for plugin in plugins:
        manager.register(plugin)
    return manager


class PluginManager:
    """The plugins of one run and the questions that the host asks them.

    Build it with `load_plugins`.
    """

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(cfk_plugin.hookspecs)
        self.infos: list[PluginInfo] = []  # in the order of loading; the last one is asked first
        self.hooks: set[str] = set()  # those that some plugin implements; the others need no call
        if log.isEnabledFor(logging.DEBUG):
            self._manager.add_hookcall_monitoring(_trace, lambda *_: None)

    def __repr__(self) -> str:
        return f"PluginManager({[info.name for info in self.infos]})"

    def versions(self) -> dict[str, str]:
        """Return the version of each distribution that brought a plugin (or of the plugin itself,
        if it was passed).
        """
        return {info.distribution or info.name: info.version for info in self.infos}

    def load(self, point: EntryPoint, name: str, version: str) -> None:
        """Import the plugin behind an entry point of a distribution and register it."""
        with quiet(
            f"plugin {point.name!r} of {name!r} failed to load; disable it with {DISABLE}",
            PluginError,
        ):
            plugin = point.load()
        self.register(plugin, point.name, name, version)

    def register(
        self,
        plugin: Any,
        name: str | None = None,
        distribution: str | None = None,
        version: str | None = None,
    ) -> None:
        """Add a plugin; one that is there already is left alone."""
        kind = plugin if isinstance(plugin, type) else type(plugin)
        own = (
            plugin.__name__
            if isinstance(plugin, ModuleType)
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        name = name or own
        if isinstance(plugin, type):
            raise PluginError(
                f"plugin {name!r} is a class, not an instance; have you forgotten the ()?"
            )
        if self._manager.is_registered(plugin):
            return
        if self._manager.has_plugin(name):
            name = f"{distribution or 'passed'}:{name}:{len(self.infos)}"
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(f"plugin {name!r} does not fit the hooks: {error}") from None
        hooks = tuple(sorted(hook.name for hook in self._manager.get_hookcallers(plugin) or ()))
        if not hooks:
            raise PluginError(
                f"plugin {name!r} implements no hook; mark its functions with @hookimpl"
            )
        version = version or str(getattr(plugin, "__version__", "unknown"))
        self.infos.append(PluginInfo(name, distribution, version, hooks))
        self.hooks.update(hooks)
        log.debug("plugin %s %s registered (%s)", name, version, ", ".join(hooks))

    def adapt(self, explainer: Any, context: AdaptContext) -> CounterfactualSource:
        """Return the source of counterfactuals for an explainer."""
        with quiet("an adapter failed", PluginError, let=(AdapterError, MissingDependencyError)):
            source: CounterfactualSource | None = self._manager.hook.cfk_adapt(
                explainer=explainer, context=context
            )
            # which may read properties of the adapter
            is_source = isinstance(source, CounterfactualSource)
        if source is None:
            kind = f"{type(explainer).__module__}.{type(explainer).__qualname__}"
            known = ", ".join(info.name for info in self.infos) or "none"
            raise AdapterError(
                f"no adapter knows an explainer of type {kind} (plugins loaded: {known}). Give a"
                " function that asks it:\n    def explain(queries):  # a DataFrame\n        rows ="
                " explainer.METHOD(queries.to_numpy())  # one per query, as yours is asked\n      "
                "  return pd.DataFrame(rows, columns=queries.columns, index=queries.index)\nFor"
                " several answers, none, or methods of its own, see"
                " docs/how-to/write-an-adapter.md"
            )
        if not is_source:
            parts = ("name", "instance_based", "generate", "methods", "restore")
            missing = [part for part in parts if not hasattr(source, part)]
            raise PluginError(
                f"an adapter returned {type(source).__name__}, which is no CounterfactualSource: it"
                f" has no {' and no '.join(missing)}"
            )
        return source

    def protectors(self) -> dict[str, Callable[[], Protector]]:
        """Return the protectors that plugins bring, by name."""
        found: dict[str, Callable[[], Protector]] = {}
        with quiet("registering protectors failed", PluginError):
            answers = self._manager.hook.cfk_register_protectors()
        for some in answers:
            if taken := sorted(set(some) & set(found)):
                raise PluginError(
                    f"two plugins bring a protector named {', '.join(taken)}; disable one"
                )
            found.update(some)
        return found

    def detect(self, frame: pd.DataFrame, population: Population) -> list[NativeStatus | None]:
        """Return the plugins' worst finding per counterfactual; to be combined with the host's by
        `worst`.
        """
        with quiet("a plugin failed in cfk_detect", PluginError):
            answers = self._manager.hook.cfk_detect(
                frame=frame.copy(deep=True), population=population
            )
        for answer in answers:
            if len(answer) != len(frame) or any(f not in _BY_SEVERITY for f in answer):
                raise PluginError(
                    "a plugin's cfk_detect must return one known finding or None per row"
                )
        return (
            [worst(*findings) for findings in zip(*answers, strict=True)]
            if answers
            else [None] * len(frame)
        )

    def released(self, record: ReleaseRecord) -> None:
        """Tell every plugin of a release; one that fails is logged and keeps no other from hearing
        of it.
        """
        for hook in reversed(self._manager.hook.cfk_released.get_hookimpls()):
            alone = self._manager.subset_hook_caller(
                "cfk_released", [p for p in self._manager.get_plugins() if p is not hook.plugin]
            )
            try:
                with quiet("raised {} in cfk_released", PluginError):
                    alone(record=record)
            except PluginError as error:  # the release is done; a listener must not undo it
                log.warning("plugin %s %s", hook.plugin_name, error)


def worst(*findings: NativeStatus | None) -> NativeStatus | None:
    """Return the worst of several findings on one counterfactual."""
    return _BY_SEVERITY[max(map(_BY_SEVERITY.index, findings), default=0)]


def _installed(disabled: set[str]) -> list[tuple[EntryPoint, str, str]]:
    """Return what to load, with distribution and version: built-in ones first, so that the others
    are asked before.
    """
    about = cache(_about)
    points = []
    seen: set[str] = set()
    for point in entry_points(group=PROJECT):
        name, version = about(point.dist) if point.dist else (point.value, "unknown")
        names = {_normal(point.name), _normal(name)}
        seen |= names
        if not names & disabled:
            points.append((point, name, version))
    for name in sorted(disabled - seen):
        log.warning("no plugin or distribution %s to disable", name)
    return sorted(
        points, key=lambda each: (_normal(each[1]) != BUILT_IN, _normal(each[1]), each[0].name)
    )


def _about(distribution: Distribution) -> tuple[str, str]:
    """Return name and version. Looking up either parses all metadata of the distribution."""
    said = distribution.metadata
    return said["Name"], said["Version"]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _trace(
    hook_name: str,
    implementations: Sequence[pluggy.HookImpl],
    arguments: Mapping[str, Any],  # noqa: ARG001 - pluggy gives it, and it can hold rows
) -> None:
    names = [implementation.plugin_name for implementation in reversed(implementations)]
    log.debug("hook %s -> %s", hook_name, ", ".join(names) or "nobody")


# Generators: explainers by name, made from a training table and a model, for audits that train
# again.

GROUP = "cfk_plugin.generators"
"""Name of the entry-point group."""


class Factory(Protocol):
    """Makes an explainer; a function that an entry point of the group names.

    What the explainer answers may be training rows: its ``explain(X)`` returns one row per query,
    in the queries' index, with missing values where it found none. It may have ``needs``: the
    import names of required libraries, each with what to do if it is missing.
    """

    def __call__(
        self,
        train: pd.DataFrame,
        labels: NDArray[Any],
        model: Any,
        desired: Any = "opposite",
        seed: int = 0,
    ) -> Any:
        """Make an explainer."""
        ...


def generators() -> tuple[str, ...]:
    """Return the names of the generators that can be used here: installed, with the libraries that
    they need.
    """
    usable = []
    for name, point in sorted(_points().items()):
        try:
            if not _missing(_load(point)):
                usable.append(name)
        except PluginError as error:
            log.warning("%s", error)
    return tuple(usable)


def generator(name: str) -> Factory:
    """Return the function that makes an explainer, by name.

    Parameters
    ----------
    name : str
        One of `generators`; other distributions may add to them.

    Returns
    -------
    callable, see `Factory`

    Raises
    ------
    InputError, MissingDependencyError, PluginError
        If the name is unknown or taken twice, a library is missing, or the function cannot be
        loaded.
    """
    points = _points()
    if name not in points:
        known = ", ".join(sorted(points)) or "none: install the package cfk-plugin"
        raise InputError(f"no generator {name!r}; installed are {known}")
    factory = _load(points[name])
    if missing := _missing(factory):
        advice = "; ".join(missing.values())
        raise MissingDependencyError(
            f"the generator {name} needs {' and '.join(missing)}: {advice}"
        )
    return factory


def _points() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name].value != point.value:
            raise PluginError(
                f"two installed distributions bring a generator named {point.name}; remove one"
            )
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
    """Return the import names of libraries that are not installed, each with what to do."""
    needs: Mapping[str, str] = getattr(factory, "needs", {})
    return {library: advice for library, advice in needs.items() if find_spec(library) is None}
