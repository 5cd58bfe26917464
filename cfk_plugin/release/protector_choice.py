"""The choice of a protector by the setting `method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.hookspecs import Protector
from cfk_plugin.protection import BUILT_IN

AUTO = "auto"
_DEFAULT = "exact"  # the protector of "auto"


def choose_protector(
    method: str | Protector, plugins: Mapping[str, Callable[[], Protector]]
) -> tuple[Protector, str]:
    """Return the protector of a method, and its name.

    The name is read before the protector sees data, because certificates contain it.
    """
    if method == AUTO:
        method = _DEFAULT
    if isinstance(method, str):
        if method == "dp":
            raise InputError(
                'method="dp" answers queries and does not use counterfactuals; use DPPrototypes,'
                ' or protect(explainer, method="dp", ...)'
            )
        protectors: dict[str, Callable[[], Protector]] = {**plugins, **BUILT_IN}
        if method not in protectors:
            names = ["auto", *sorted(protectors)]
            raise InputError(
                f"unknown method {method!r}; known: {', '.join(names)}"
                f"{did_you_mean([method], names)}"
            )
        return protectors[method](), method
    name = getattr(method, "name", None)
    if type(name) is not str or not callable(getattr(method, "protect", None)):
        raise InputError(f"method must be a name or a protector; got {type(method).__name__}")
    if name in BUILT_IN and not isinstance(method, BUILT_IN[name]):
        raise InputError(
            f"a protector has the name {name!r} of a built-in protector; give it another name"
        )
    return method, name
