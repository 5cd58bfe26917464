"""Find, load and call plugins and generators.

Importing this module loads no plugin: each run builds its own `PluginManager`.
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

    name: str  # name of the entry point, or of the module or class that the caller passed
    distribution: str | None  # name of its distribution; None if the caller passed the plugin
    version: str  # of the distribution, the plugin's ``__version__``, or "unknown"
    hooks: tuple[str, ...]  # names of the hooks that it implements


def load_plugins(
    plugins: Iterable[Any] = (), disable: Iterable[str] = (), entry_points: bool = True
) -> PluginManager:
    """Load the installed plugins, without those named in `disable` and in the environment, and
    register the `plugins` that the caller passes.
    """
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
    """The plugins of one run; calls their hooks. `load_plugins` builds it."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(cfk_plugin.hookspecs)
        self.infos: list[PluginInfo] = []  # in the order of loading; the last one is called first
        self.hooks: set[str] = set()  # names of hooks that at least one plugin implements
        if log.isEnabledFor(logging.DEBUG):
            self._manager.add_hookcall_monitoring(_trace, lambda *_: None)

    def __repr__(self) -> str:
        return f"PluginManager({[info.name for info in self.infos]})"

    def versions(self) -> dict[str, str]:
        """Return versions by the name of the distribution, or of the plugin if it has none."""
        return {info.distribution or info.name: info.version for info in self.infos}

    def load(self, point: EntryPoint, name: str, version: str) -> None:
        """Import the plugin of an entry point and register it.

        `name` and `version` are those of its distribution.
        """
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
        """Add a plugin, unless it is registered already.

        Without a name, it gets that of its module or class.
        """
        name = name or _name_of(plugin)
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
        """Return the source of counterfactuals that an adapter makes for an explainer."""
        with quiet("an adapter failed", PluginError, let=(AdapterError, MissingDependencyError)):
            source: CounterfactualSource | None = self._manager.hook.cfk_adapt(
                explainer=explainer, context=context
            )
            # inside `quiet`: the check reads properties of the adapter, which may raise
            is_source = isinstance(source, CounterfactualSource)
        if source is None:
            kind = f"{type(explainer).__module__}.{type(explainer).__qualname__}"
            names = ", ".join(info.name for info in self.infos) or "none"
            raise AdapterError(
                f"no adapter knows an explainer of type {kind} (plugins loaded: {names}). Pass a"
                " function that calls it:\n    def explain(queries):  # a DataFrame\n        rows ="
                " explainer.METHOD(queries.to_numpy())  # one row per query\n        return"
                " pd.DataFrame(rows, columns=queries.columns, index=queries.index)\nFor several"
                " answers per query, or methods of its own, see docs/how-to/write-an-adapter.md"
            )
        if not is_source:
            parts = ("name", "instance_based", "generate", "methods", "restore")
            missing = [part for part in parts if not hasattr(source, part)]
            raise PluginError(
                f"an adapter returned {type(source).__name__}, which is not a CounterfactualSource:"
                f" it lacks {' and '.join(missing)}"
            )
        return source

    def protectors(self) -> dict[str, Callable[[], Protector]]:
        """Return the makers of all plugins' protectors, by name."""
        makers: dict[str, Callable[[], Protector]] = {}
        with quiet("registering protectors failed", PluginError):
            mappings = self._manager.hook.cfk_register_protectors()
        for mapping in mappings:
            if duplicates := sorted(set(mapping) & set(makers)):
                raise PluginError(
                    f"two plugins register a protector named {', '.join(duplicates)}; disable one"
                )
            makers.update(mapping)
        return makers

    def detect(self, frame: pd.DataFrame, population: Population) -> list[NativeStatus | None]:
        """Return the plugins' worst finding for each row of `frame`."""
        with quiet("a plugin failed in cfk_detect", PluginError):
            answers = self._manager.hook.cfk_detect(
                frame=frame.copy(deep=True), population=population
            )
        for answer in answers:
            if len(answer) != len(frame) or any(f not in _BY_SEVERITY for f in answer):
                raise PluginError(
                    "a plugin's cfk_detect must return a NativeStatus or None for each row"
                )
        if not answers:
            return [None] * len(frame)
        return [worst(*findings) for findings in zip(*answers, strict=True)]

    def released(self, record: ReleaseRecord) -> None:
        """Pass a record to every plugin's `cfk_released`, and log the plugins that raise."""
        for hook in reversed(self._manager.hook.cfk_released.get_hookimpls()):
            others = [p for p in self._manager.get_plugins() if p is not hook.plugin]
            call_plugin = self._manager.subset_hook_caller("cfk_released", others)
            try:
                with quiet("raised {} in cfk_released", PluginError):
                    call_plugin(record=record)
            except PluginError as error:  # the explanation has left; a plugin must not undo that
                log.warning("plugin %s %s", hook.plugin_name, error)


def worst(*findings: NativeStatus | None) -> NativeStatus | None:
    """Return the most severe of several findings on one counterfactual."""
    return _BY_SEVERITY[max(map(_BY_SEVERITY.index, findings), default=0)]


def _name_of(plugin: object) -> str:
    """Return the name of a module, or of the class of any other plugin."""
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return f"{kind.__module__}.{kind.__qualname__}"


def _installed(disabled: set[str]) -> list[tuple[EntryPoint, str, str]]:
    """Return the entry points of plugins, each with the name and version of its distribution.

    Built-in plugins are first, because the plugin that is loaded last is called first.
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

    def order(entry: tuple[EntryPoint, str, str]) -> tuple[bool, str, str]:
        point, name, _ = entry
        return _normal(name) != BUILT_IN, _normal(name), point.name

    return sorted(points, key=order)


def _about(distribution: Distribution) -> tuple[str, str]:
    """Return the name and version of a distribution. Slow: it parses all of its metadata."""
    metadata = distribution.metadata
    return metadata["Name"], metadata["Version"]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _trace(
    hook_name: str,
    implementations: Sequence[pluggy.HookImpl],
    arguments: Mapping[str, Any],  # noqa: ARG001 - pluggy passes it; not logged, as it has rows
) -> None:
    names = [implementation.plugin_name for implementation in reversed(implementations)]
    log.debug("hook %s -> %s", hook_name, ", ".join(names) or "no plugin")


# Generators make explainers from a training table and a model, for audits that train models again.

GROUP = "cfk_plugin.generators"
"""Name of the entry-point group."""


class Factory(Protocol):
    """A function that makes an explainer, which an entry point of the group names.

    The explainer's ``explain(X)`` returns one row for each query, with the index of `X`, and
    missing values in a row if it found no counterfactual. Its answers are not protected and may be
    training rows. The function may have an attribute ``needs``: the import names of required
    libraries, each with advice for a user who lacks it.
    """

    def __call__(
        self,
        train: pd.DataFrame,
        labels: NDArray[Any],
        model: Any,
        desired: Any = "opposite",
        seed: int = 0,
    ) -> Any:
        """Return an explainer of the model."""
        ...


def generators() -> tuple[str, ...]:
    """Return the names of the installed generators whose libraries are installed too."""
    usable = []
    for name, point in sorted(_points().items()):
        try:
            if not _missing(_load(point)):
                usable.append(name)
        except PluginError as error:
            log.warning("%s", error)
    return tuple(usable)


def generator(name: str) -> Factory:
    """Return the function that makes the explainers of a generator.

    Parameters
    ----------
    name : str
        One of `generators`.

    Returns
    -------
    Factory

    Raises
    ------
    InputError
        If no generator has this name.
    MissingDependencyError
        If a library is not installed; the message says how to install it.
    PluginError
        If two distributions have a generator of this name, or it cannot be loaded.
    """
    points = _points()
    if name not in points:
        names = ", ".join(sorted(points)) or "none: install the package cfk-plugin"
        raise InputError(f"no generator {name!r}; installed are {names}")
    factory = _load(points[name])
    if missing := _missing(factory):
        advice = "; ".join(missing.values())
        raise MissingDependencyError(
            f"the generator {name} needs {' and '.join(missing)}: {advice}"
        )
    return factory


def _points() -> dict[str, EntryPoint]:
    """Return the entry points of installed generators by name."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in points and points[point.name].value != point.value:
            raise PluginError(
                f"two installed distributions have a generator named {point.name}; remove one"
            )
        points[point.name] = point
    return points


def _load(point: EntryPoint) -> Factory:
    """Import the function of an entry point."""
    message = f"the generator {point.name} ({point.value}) cannot be loaded"
    with quiet(message, PluginError):
        factory = point.load()
    if not callable(factory):
        raise PluginError(f"{message} (not a function)")
    loaded: Factory = factory
    return loaded


def _missing(factory: Factory) -> Mapping[str, str]:
    """Return the libraries in ``factory.needs`` that are not installed, each with its advice."""
    needs: Mapping[str, str] = getattr(factory, "needs", {})
    return {library: advice for library, advice in needs.items() if find_spec(library) is None}
