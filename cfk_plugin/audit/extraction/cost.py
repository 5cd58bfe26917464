"""How much work copying models is, from what two small trainings of each kind took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.extraction.architecture import Architecture, Network, architectures, said
from cfk_plugin.audit.extraction.failing import called
from cfk_plugin.audit.extraction.fidelity import QUERIES, sizes_that_fit
from cfk_plugin.audit.extraction.guessing import KNOWING
from cfk_plugin.audit.extraction.sets import SETS, draw_sets
from cfk_plugin.audit.extraction.shadows import WAYS, most_queries
from cfk_plugin.audit.extraction.telling import LAYERS
from cfk_plugin.audit.extraction.transfer import fit
from cfk_plugin.audit.extraction.values import values_of
from cfk_plugin.audit.running import Work

_PROBE = (100, 400)  # rows; trainings on them together take about a second
_SHADOWS = SETS - 1


class Line(NamedTuple):
    """Seconds as a function of rows: fixed + per_row * rows."""

    fixed: float
    per_row: float

    def seconds(self, rows: float) -> float:
        """Return the seconds that so many rows take."""
        return self.fixed + self.per_row * rows


class Pace(NamedTuple):
    """How fast one kind of model is."""

    fitting: Line
    asking: Line


Paces = dict[str, Pace]
"""What was measured before, by kind of model; filled in here, so that who tries several sizes measures once."""


def extraction_work(
    owner: Owner,
    sample: Sample,
    *,
    queries: Sequence[int] = QUERIES,
    known: Architecture | None = None,
    unknown: Architecture | None = None,
    repeats: int = 3,
    held_out: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `extraction` has to do with the same settings; trains each kind of surrogate three times to measure it.

    Where the share of undesired outcomes is needed, it is that of the true ones. The owner trains on an eighth of the
    sample.

    Raises
    ------
    InputError
        As `extraction`.
    """
    sets = draw_sets(sample, seed)
    sizes, _ = sizes_that_fit(queries, len(sets.own))
    undesired, people = _undesired(sample), min(held_out, len(sample))
    rows = [count for size in sizes for count in (size, size * (1 + undesired), size * (1 + undesired))]
    each = 0.0
    for architecture in architectures(owner, known, unknown).values():
        pace = _pace(architecture, sample, seed, paces)
        each += sum(pace.fitting.seconds(count) + 2 * pace.asking.seconds(people) for count in rows)
    return Work(repeats, round(repeats * undesired * sizes[-1]), repeats * each)


def membership_through_surrogate_work(
    owner: Owner,
    sample: Sample,
    *,
    queries: int = 2000,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `membership_through_surrogate` has to do with the same settings; as `extraction_work`."""
    random = np.random.default_rng(seed)

    def train(rows: int) -> Any:
        return Network(tuple(layers)).classifier(seed).fit(random.random((rows, 3)), np.arange(rows) % 2)

    half, paces, key = _attacked(sample, attacked), {} if paces is None else paces, f"attack {tuple(layers)}"
    if key not in paces:
        paces[key] = Pace(_line(train), Line(0.0, 0.0))
    networks = _SHADOWS * len(WAYS) * paces[key].fitting.seconds(2 * half)
    return _shadow_work(owner, sample, queries, architecture, half, seed, paces).plus(Work(seconds=networks))


def attribute_inference_through_surrogate_work(
    owner: Owner,
    sample: Sample,
    *,
    attribute: str,
    edges: Sequence[float] | None = None,
    queries: int = 2000,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `attribute_inference_through_surrogate` has to do with the same settings; as `extraction_work`."""
    half, pace = _attacked(sample, attacked), _pace(Network(tuple(layers)), sample, seed, paces)
    networks = _SHADOWS * len(KNOWING) * pace.fitting.seconds(half)
    values = len(values_of(sample.X[attribute], edges).examples)
    return _shadow_work(owner, sample, queries, architecture, half, seed, paces, values).plus(Work(seconds=networks))


def _shadow_work(
    owner: Owner,
    sample: Sample,
    queries: int,
    architecture: Architecture | None,
    half: int,
    seed: int,
    paces: Paces | None,
    times: int = 1,
) -> Work:
    """Return the work of four surrogates, asked about members and others so many times each."""
    asked = most_queries(draw_sets(sample, seed), queries)
    pace = _pace(architecture or next(iter(architectures(owner).values())), sample, seed, paces)
    undesired = _undesired(sample)
    fitting = pace.fitting.seconds(asked) + pace.fitting.seconds(asked * (1 + undesired))
    asking = 2 * len(WAYS) * times * pace.asking.seconds(half)
    return Work(SETS, round(SETS * undesired * asked), SETS * (fitting + asking))


def _undesired(sample: Sample) -> float:
    return float((~sample.y).mean())


def _attacked(sample: Sample, attacked: int) -> int:
    return min(attacked, len(sample) // (2 * SETS))


def _pace(architecture: Architecture, sample: Sample, seed: int, paces: Paces | None) -> Pace:
    """Measure trainings on people with their true outcomes, and asking about them."""
    paces, key = {} if paces is None else paces, said(architecture)
    if key in paces:
        return paces[key]
    rows = {n: sample.take(np.arange(min(n, len(sample)))) for n in _PROBE}
    trained = fit(architecture, (rows[_PROBE[-1]].X, rows[_PROBE[-1]].y), seed)
    paces[key] = Pace(
        _line(lambda n: fit(architecture, (rows[n].X, rows[n].y), seed)),
        _line(lambda n: trained.desired(rows[n].X)),
    )
    return paces[key]


def _line(call: Callable[[int], object]) -> Line:
    """Time a call with few and with more rows; once before, as the first time loads and compiles."""
    called("a probe", lambda: call(_PROBE[0]))
    taken = []
    for rows in _PROBE:
        started = time.perf_counter()
        called("a probe", lambda: call(rows))  # noqa: B023 - called at once
        taken.append(time.perf_counter() - started)
    per_row = max(taken[1] - taken[0], 0.0) / (_PROBE[1] - _PROBE[0])
    return Line(max(taken[0] - per_row * _PROBE[0], 0.0), per_row)
