"""The guess without any answer: what quasi-identifiers alone tell, learnt from people whom the adversary knows."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.attribute_inference.guesses import Guesses
from cfk_plugin.audit.attribute_inference.register import Mask, Register, Rows, is_one_value, width

_TREES, _LEAST, _MOST = 30, 5, 50  # trees; people in a leaf of each; classes, the most frequent ones


def baseline(
    guessed: Guesses, register: Register, name: str, own: Rows, asked: Rows, *, tolerance: float, seed: int
) -> Mask:
    """Say of people whether a guess from their quasi-identifiers alone is right, at the width of the answers' guesses.

    Parameters
    ----------
    guessed : Guesses
        What the answers say of the attribute.
    register : Register
    name : str
        The attribute.
    own : int array
        People whose values the adversary knows.
    asked : int array
        People who are guessed.
    tolerance : float
        See `near`.
    seed : int
        Of the forest.

    Returns
    -------
    bool array

    Notes
    -----
    A random forest on the quasi-identifiers chooses among classes. Where answers are single numbers, these are windows
    of 2 `tolerance` of the range, as wide as a number that may be off by `tolerance`; where they are categories, the
    categories; where they are bins, ranges or sets, those, with one class for everything outside of all of them. Of
    more than 50 classes the most frequent ones are chosen among.
    """
    from sklearn.ensemble import RandomForestClassifier

    class_of = _classes(guessed, register, name, tolerance)
    learnt = class_of[register.codes(name, own)]
    classes, counts = np.unique(learnt, return_counts=True)
    common = np.isin(learnt, classes[np.argsort(-counts, kind="stable")[:_MOST]])
    cells, where = np.unique(register.cell_of[asked], return_inverse=True)
    forest = RandomForestClassifier(_TREES, min_samples_leaf=_LEAST, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nearly as many classes as people: then there is little to learn
        forest.fit(register.cells[register.cell_of[own[common]]], learnt[common])
    chosen = forest.predict(register.cells[cells])
    return np.asarray(chosen[where] == class_of[register.codes(name, asked)])


def _classes(guessed: Guesses, register: Register, name: str, tolerance: float) -> NDArray[np.int64]:
    """Return the class of every value."""
    domain = register.domain(name)
    if not all(map(is_one_value, guessed.parts)):
        return np.where(guessed.right.any(axis=0), guessed.right.argmax(axis=0), -1)
    window = 2 * tolerance * width(domain) if domain.attribute.kind == "numeric" else 0.0
    if window <= 0:
        return np.arange(domain.size)
    classes = np.full(domain.size, -1, dtype=np.int64)  # missing
    classes[: len(domain.values)] = (domain.values - domain.values[0]) // window
    return classes
