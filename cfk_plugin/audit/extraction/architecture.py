"""What kind of model an attacker trains: the owner's own kind, or another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfk_plugin.audit.attacked import KnownArchitecture, Owner

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier

Architecture = Callable[[int], Any]
"""From a seed to a new classifier that takes a DataFrame of features, see `KnownArchitecture`."""

_LAYERS = (64, 32)
_EPOCHS = 100


@dataclass(frozen=True, slots=True)
class Network:
    """A network of dense layers on rows as numbers.

    Attributes
    ----------
    layers : tuple of int
        Widths of the hidden layers.
    epochs : int
        At most; it stops before when the loss no longer falls.
    """

    layers: tuple[int, ...] = _LAYERS
    epochs: int = _EPOCHS

    def __call__(self, seed: int) -> Any:
        """Return a new one."""
        from sklearn.pipeline import make_pipeline

        from cfk_plugin.audit.extraction.numbers import RowsAsNumbers

        return make_pipeline(RowsAsNumbers(), self.classifier(seed))

    def classifier(self, seed: int) -> MLPClassifier:
        """Return a new one that takes numbers."""
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier(self.layers, max_iter=self.epochs, random_state=seed)


def architectures(
    owner: Owner, known: Architecture | None = None, unknown: Architecture | None = None
) -> dict[str, Architecture]:
    """Return what an attacker trains who knows the owner's kind of model ("known"), and who does not ("unknown").

    Parameters
    ----------
    owner : Owner
    known : callable, optional
        Default: what the owner says, see `KnownArchitecture`. Without either there is no "known".
    unknown : callable, optional
        Default: a network with hidden layers of 64 and 32; of an owner with a network, the same with one layer more,
        as wide as its last one.
    """
    if known is None and isinstance(owner, KnownArchitecture):
        known = owner.architecture
    found = {} if known is None else {"known": known}
    return found | {"unknown": unknown or _another(known)}


def said(architecture: Architecture) -> str:
    """Name an architecture with all its settings, for keys of kept results."""
    return ";".join(_parts(architecture(0)))


def name_of(architecture: Architecture) -> str:
    """Name the class of the classifier, for settings."""
    return type(_last_step(architecture(0))).__name__


def _another(known: Architecture | None) -> Architecture:
    from sklearn.neural_network import MLPClassifier

    of_owner = None if known is None else _last_step(known(0))
    if not isinstance(of_owner, MLPClassifier):
        return Network()
    layers = tuple(int(width) for width in _tuple(of_owner.hidden_layer_sizes))
    return Network((*layers, layers[-1] if layers else _LAYERS[0]), of_owner.max_iter)


def _last_step(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _parts(model: Any) -> Iterator[str]:
    yield type(model).__qualname__
    settings: Mapping[str, Any] = model.get_params() if hasattr(model, "get_params") else {}
    for name, value in sorted(settings.items()):
        if isinstance(value, (str, int, float, tuple, type(None))):
            yield f"{name}={value!r}"
