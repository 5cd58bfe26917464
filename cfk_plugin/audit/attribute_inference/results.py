"""From counts to results: shares with intervals over places, pooled over attributes and for each of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.attribute_inference.counting import (
    ALL,
    BASE,
    CONTROL_ALL,
    CONTROL_RIGHT,
    FEW,
    RIGHT,
    Setup,
    few,
)
from cfk_plugin.audit.result import AuditResult, Rate
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.metrics.intervals import clustered_share, difference

NAME, SINGLED_OUT = "attribute_inference_linkage", "attribute_inference_singled_out"
SCENARIO = (
    "Knows the quasi-identifiers of everybody in the training table, asks for explanations, looks up who fits them, "
    "and guesses that those people hold the private values that the explanations say."
)
ONLY_FEW = f"{SCENARIO} Guesses only where an explanation fits at most {FEW} people of the table."

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def results(found: Found, setup: Setup) -> tuple[AuditResult, ...]:
    """Return the result over all private attributes, that of answers which single out, and one for each attribute.

    Parameters
    ----------
    found : mapping
        As a `Run` returns it.
    setup : Setup

    Returns
    -------
    tuple of AuditResult
    """
    counts, shares = np.asarray(found["counts"]), np.asarray(found["shares"])
    asked, n, sizes = int(found["asked"]), int(found["answered"]), np.asarray(found["sizes"])
    places, answers = few(np.asarray(found["people"])), few(sizes)
    pooled = {
        "answers": float(n),
        "unanswered": 1 - n / asked if asked else math.nan,
        "fits_one": _mean(sizes == 1),
        "fits_nobody": _mean(sizes == 0),
        **_people(found["guessed"][0]),
    }
    singled = {"share_of_answers": _mean(answers), **_people(found["guessed"][1])}
    return (
        _result(NAME, SCENARIO, counts.sum(axis=0), shares, pooled, setup.seed),
        _result(SINGLED_OUT, ONLY_FEW, counts.sum(axis=0)[places], shares[:, answers], singled, setup.seed),
        *(
            _result(
                f"{NAME}/{name}", SCENARIO, own, shares[[i]], _people(own.sum(axis=0)[[ALL, CONTROL_ALL]]), setup.seed
            )
            for i, (name, own) in enumerate(zip(setup.private, counts, strict=True))
        ),
    )


def _result(
    name: str, scenario: str, counts: Counts, shares: Floats, figures: dict[str, float], seed: int
) -> AuditResult:
    columns = ((RIGHT, ALL), (BASE, ALL), (CONTROL_RIGHT, CONTROL_ALL))
    main, baseline, control = (_share(counts[:, right], counts[:, total], seed) for right, total in columns)
    low, high = difference(main[:3], control[:3])
    told = shares[:, ~np.isnan(shares).all(axis=0)]
    figures = {
        **figures,
        "advantage": main.value - control.value,
        "advantage_low": low,
        "advantage_high": high,
        "each_answer": _mean(np.nanmean(told, axis=0)),
    }
    return AuditResult(name, scenario, main, baseline, control, figures, seed, shares.shape[1])


def _share(right: Counts, total: Counts, seed: int) -> Rate:
    """Return the share of right guesses, with an interval over places: people in one place are guessed alike."""
    n, everybody = int((total > 0).sum()), int(total.sum())
    value = int(right.sum()) / everybody if everybody else math.nan
    return Rate(value, *clustered_share(right, total, random_state=seed), n)


def _people(guessed: Counts) -> dict[str, float]:
    return {"people_guessed": float(guessed[0]), "control_people": float(guessed[1])}


def _mean(values: Floats | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else math.nan
