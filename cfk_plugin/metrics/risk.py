"""Re-identification risk of released regions: prosecutor, journalist, marketer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Risk:
    """Re-identification risk over releases, each in [0, 1]; lower is better. NaN without releases.

    Attributes
    ----------
    highest, mean : float
        Over releases.
    at_risk : float
        Share of the releases whose risk exceeds the threshold.
    """

    highest: float
    mean: float
    at_risk: float


def prosecutor_risk(class_sizes: Iterable[int], threshold: float = 0.2) -> Risk:
    """Return the risk from an attacker who knows that the target is in the training data.

    Parameters
    ----------
    class_sizes : iterable of int
        Distinct people of the training data inside the region of each release.
    threshold : float
        Risk above which a release counts as at risk.

    Returns
    -------
    Risk

    Notes
    -----
    risk(r) = 1 / k(r). It assumes that everybody inside is equally likely: an attacker who reruns the
    algorithm or asks the model does better.

    References
    ----------
    El Emam, Dankar (2008), Protecting privacy using k-anonymity.
    """
    risks = _risks(class_sizes)
    if not len(risks):
        return Risk(float("nan"), float("nan"), float("nan"))
    return Risk(float(risks.max()), float(risks.mean()), float((risks > threshold).mean()))


def journalist_risk(reference_class_sizes: Iterable[int], threshold: float = 0.2) -> Risk:
    """Return the risk from an attacker who does not know whether the target is in the training data.

    Parameters
    ----------
    reference_class_sizes : iterable of int
        People of a declared reference population (of which the training data is a part) inside each region.
    threshold : float
        Risk above which a release counts as at risk.

    Returns
    -------
    Risk

    Notes
    -----
    risk(r) = 1 / |E_P(r)|. Without a reference population all that can be said is: at most the prosecutor
    risk.
    """
    return prosecutor_risk(reference_class_sizes, threshold)


def marketer_risk(class_sizes: Iterable[int]) -> float:
    """Return the expected share of releases that an attacker links right.

    Parameters
    ----------
    class_sizes : iterable of int
        People of the reference population (else of the training data) inside the region of each release.

    Returns
    -------
    float
        In [0, 1]; lower is better; NaN without releases.

    Notes
    -----
    mean over *releases* of 1 / |E(r)|. Other tools average over records or over classes; the figures differ.
    """
    risks = _risks(class_sizes)
    return float(risks.mean()) if len(risks) else float("nan")


def _risks(class_sizes: Iterable[int]) -> NDArray[np.float64]:
    sizes = np.asarray(list(class_sizes), dtype=float)
    if len(sizes) and sizes.min() < 1:
        raise InputError("each class needs at least one person")
    return np.asarray(1 / sizes, dtype=np.float64)
