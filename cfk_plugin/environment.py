"""What a run says of the environment that it was made in: versions and settings, and nothing of machine or user."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cfk_plugin.ledger import Ledger
    from cfk_plugin.population import Population

_PACKAGES = {"cfk_plugin": "cfk-plugin", **{n: n for n in ("numpy", "pandas", "scikit-learn", "mlflow")}}
_IF_INSTALLED = ("dice-ml", "NICEx", "opendp")


def environment_of(
    *,
    plugins: Mapping[str, str] | None = None,
    seed: int | None = None,
    ledger: Ledger | None = None,
    reference: Population | None = None,
) -> dict[str, Any]:
    """Return versions and settings.

    Parameters
    ----------
    plugins : mapping, optional
        Distribution of each plugin to its version.
    seed : int, optional
        None where nothing is seeded.
    ledger : Ledger, optional
    reference : Population, optional

    Returns
    -------
    dict
        ``python``; ``packages``, name to version; ``plugins``; ``seed``; ``ledger`` (``none``, ``sqlite``,
        ``postgresql``); ``reference_population``, whether there is one.
    """
    return {
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "plugins": [f"{name} {release}" for name, release in (plugins or {}).items()],
        "seed": None if seed is None else int(seed),
        "ledger": "none" if ledger is None else ledger.backend,
        "reference_population": reference is not None,
    }


@cache
def _versions() -> Mapping[str, str]:
    found = {name: _version(distribution) for name, distribution in _PACKAGES.items()}
    found |= {name: _version(name) for name in _IF_INSTALLED}
    return {name: release for name, release in found.items() if release is not None}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
