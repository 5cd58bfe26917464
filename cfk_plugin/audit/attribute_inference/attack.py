"""Attribute inference through linkage: what explanations tell of the private attributes of people in the table."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.attribute_inference.counting import Run, Setup
from cfk_plugin.audit.attribute_inference.results import results
from cfk_plugin.audit.result import check_seed
from cfk_plugin.audit.running import Kept, Piece, Work, run_pieces
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

_TRAIN = 0.6  # share of the sample: the others are needed to ask, to learn the baseline, and as a control
_PER_ATTRIBUTE, _PER_GUESS = 0.1, 1e-5  # seconds per private attribute, and for each person of the sample


def attribute_inference(
    owner: Owner,
    sample: Sample,
    *,
    quasi_identifiers: Sequence[str],
    n_train: int | None = None,
    queries: int = 200,
    tolerance: float = 0.05,
    private: Sequence[str] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Attack private attributes of people in the training table through answers that fit their quasi-identifiers.

    The sample is split by the seed: the owner trains on the table; half of the others are the adversary's own people,
    who ask where they are undesired; the rest are the control. An answer fits everybody whose quasi-identifiers are
    equal to those of a row or prototype, or inside a region. One value is guessed per person and attribute: the one
    with most votes, where an answer that fits m people of the table is a vote of 1 / m for what it says.

    Parameters
    ----------
    owner : Owner
    sample : Sample
    quasi_identifiers : sequence of str
        What the adversary knows of everybody; it need not be what the owner protects.
    n_train : int, optional
        People of the table. Default: 60 % of the sample.
    queries : int
        At most; fewer where fewer of the adversary's own people are undesired.
    tolerance : float
        Share of a number's range in the sample, below 0.5, by which a guess may be off and is right. A bin, range or
        set that was released is a guess at all of it and right about everybody inside.
    private : sequence of str, optional
        What is guessed. Default: all other features.
    seed : int
        Of the split, the owner's training and the baseline.
    n_jobs : int
        As in all attacks; this one is a single piece, which runs in this process.
    kept : Kept, optional
        Where counts are kept, so that what was run is not run again. Not for several owners of one name.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    AttackReport
        ``attribute_inference_linkage`` over all attributes; ``attribute_inference_singled_out``: the same of guesses
        that rest on an answer which fits at most three people of the table; ``attribute_inference_linkage/<attribute>``
        for each attribute. `main`: share of right guesses about people of the table, over people and attributes.
        `baseline`: the same guesses by a forest on the quasi-identifiers that learnt from the adversary's own people,
        without any answer. `control`: the attack's guesses about people of the control whose quasi-identifiers fit:
        what the answers tell of anybody like that, in the table or not. Figures: ``advantage`` (main - control) and
        others, see ``docs/reference/audits.md``.

    Raises
    ------
    InputError
        If columns are unknown, named twice, or nothing is left to guess; if a size is out of range.
    CFKError
        What the owner raises.

    Notes
    -----
    Shares are in [0, 1]; lower is better. Intervals are over places, the distinct sets of quasi-identifiers that
    answers say, since people who fit the same one are guessed alike; see `clustered_share`. An `advantage` near 0 says
    that this attack does no better on people in the table than on others; it is no proof that there is none.

    References
    ----------
    Goethals, Sörensen, Martens (2023), section 2: prosecutor and journalist. The control follows Giomi, Boenisch,
    Wehmeyer, Tasnádi (2023), A unified framework for quantifying privacy risk in synthetic data.
    """
    started = time.perf_counter()
    columns = _columns(sample, quasi_identifiers, private)
    check_seed(seed)
    _check(len(sample), n_train, queries, tolerance)
    setup = Setup(*columns, _n_train(len(sample), n_train), queries, float(tolerance), seed)
    key = f"attribute inference through linkage: {owner.name}, {setup}, sample {sample.fingerprint()}"
    (found,) = run_pieces([Piece(key, Run(owner, sample, setup))], n_jobs=n_jobs, kept=kept, progress=progress)
    return AttackReport(
        kind="attribute_inference",
        subject=owner.name,
        results=results(found, setup),
        settings={
            "n_train": setup.n_train,
            "queries": queries,
            "tolerance": setup.tolerance,
            "seed": seed,
            "quasi_identifiers": ", ".join(setup.quasi_identifiers),
            "private": ", ".join(setup.private),
        },
        policy=getattr(owner, "policy", None),
        seconds=time.perf_counter() - started,
    )


def attribute_inference_work(
    sample: Sample,
    *,
    quasi_identifiers: Sequence[str],
    n_train: int | None = None,
    queries: int = 200,
    private: Sequence[str] | None = None,
) -> Work:
    """Return what `attribute_inference` has to do with these sizes.

    Parameters
    ----------
    sample : Sample
    quasi_identifiers, n_train, queries, private
        As of the attack.

    Returns
    -------
    Work
        One training, the queries (at most), and an estimate of what the guesses take.

    Raises
    ------
    InputError
        As the attack.
    """
    guessed = _columns(sample, quasi_identifiers, private)[1]
    _check(len(sample), n_train, queries, 0.0)
    own = (len(sample) - _n_train(len(sample), n_train) + 1) // 2
    return Work(
        trainings=1, explanations=min(queries, own), seconds=len(guessed) * (_PER_ATTRIBUTE + _PER_GUESS * len(sample))
    )


def _columns(
    sample: Sample, quasi_identifiers: Sequence[str], private: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return both kinds of columns in the table's order."""
    features = list(sample.X.columns)
    if isinstance(quasi_identifiers, str) or isinstance(private, str):
        raise InputError("quasi_identifiers and private are lists of columns, not one name")
    known = list(quasi_identifiers)
    guessed = [name for name in features if name not in known] if private is None else list(private)
    for what, names in (("quasi-identifiers", known), ("private attributes", guessed)):
        if not names:
            raise InputError(f"{what} must be one column at least")
        if unknown := [name for name in names if name not in features]:
            raise InputError(f"{what} that are no columns of the sample: {', '.join(map(str, unknown))}")
    if len({*known, *guessed}) < len(known) + len(guessed):
        raise InputError("a column is a quasi-identifier or a private attribute, once")
    return tuple(c for c in features if c in known), tuple(c for c in features if c in guessed)


def _check(n: int, n_train: int | None, queries: int, tolerance: float) -> None:
    for name, value in (("n_train", n_train), ("queries", queries)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{name} must be a whole number of at least 1")
    if n - _n_train(n, n_train) < 2:
        raise InputError(f"a sample of {n} leaves fewer than 2 people outside of the table; take a smaller n_train")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 0.5:
        raise InputError("tolerance must be a share of the range of at least 0 and below 0.5")


def _n_train(n: int, given: int | None) -> int:
    return round(_TRAIN * n) if given is None else given
