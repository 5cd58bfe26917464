"""What is released of the private attributes: each exactly, as a declared bin, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import isnan

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import Domain, bin_codes, bin_of, bin_part
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import PolicyError
from cfk_plugin.metrics.uniqueness import PrivateValues, Span


class Form(Enum):
    """How an attribute is released, where it is not as a bin."""

    EXACT = "exact"
    WITHHELD = "withheld"


Coarse = Mapping[str, Interval | Form]
"""Private attributes that are not released exactly: the declared bin, or `Form.WITHHELD`."""


@dataclass(frozen=True, slots=True)
class PrivatePart:
    """What leaves of one counterfactual's private attributes, in codes and counts."""

    coarse: Coarse = field(default_factory=dict)  # Attributes that are not released exactly
    # The codes that each private attribute stands for, the counterfactual's own value included (``domain.size`` for one
    # that no row has). Empty when all are released exactly: then combinations are those of the region alone.
    axes: tuple[NDArray[np.int32], ...] = ()
    # Rows inside the region, and of the whole population, that fit what is released; None where there are no rows
    inside: int | None = None
    anywhere: int | None = None

    @property
    def binned(self) -> tuple[str, ...]:
        """Attributes that are released as their bin."""
        return tuple(name for name, form in self.coarse.items() if isinstance(form, Interval))

    @property
    def withheld(self) -> tuple[str, ...]:
        """Attributes of which nothing is released."""
        return tuple(name for name, form in self.coarse.items() if form is Form.WITHHELD)


class PrivateRelease:
    """Decides what of a counterfactual's private attributes may leave together with a region.

    A function of policy, population, counterfactual and people alone. Attributes are judged one by one: rare values
    (fewer than k people of the population) first, then (alpha, k)-homogeneity among the people in the region.
    """

    def __init__(self, population: Population, policy: PrivacyPolicy) -> None:
        self._population, self._policy = population, policy
        self._names = population.schema.private
        self._at = [population.schema.features.index(name) for name in self._names]
        self._domains = [population.domains[name] for name in self._names]
        self._values = PrivateValues(population)
        if policy.private_values == "bins" and all(domain.attribute.bins is None for domain in self._domains):
            raise PolicyError('private_values="bins" needs bins in the schema; declare them with `bins=`')
        self._exact = policy.private_values == "exact" and policy.rare_values == "release" and policy.alpha is None
        if not self._exact and not population.has_rows:
            raise PolicyError(
                "bins, rare values and alpha are judged by private values, which a sealed population does not have"
            )

    def __repr__(self) -> str:
        """Show the settings, never a value."""
        return f"PrivateRelease({self._values!r})"

    def decide(self, codes: NDArray[np.int32], numbers: NDArray[np.float64], rows: NDArray[np.int64]) -> Coarse | None:
        """Say which private attributes are not released exactly."""
        if self._exact:
            return {}
        inside = self._population.people(rows)
        coarse: dict[str, Interval | Form] = {}
        for j, (name, at) in enumerate(zip(self._names, self._at, strict=True)):
            code = int(codes[at])
            form = self._form(j, code, number_of(self._domains[j], code, float(numbers[at])), rows, inside)
            if form is None:
                return None
            if form is not Form.EXACT:
                coarse[name] = form
        return coarse

    def part(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        rows: NDArray[np.int64],
        alike: NDArray[np.int64],
    ) -> PrivatePart | None:
        """Decide for the rows `alike`, and count among the `rows` inside the region; None as for `decide`."""
        coarse = self.decide(codes, numbers, alike)
        if coarse is None:
            return None
        if not self._population.has_rows:
            return PrivatePart()
        spans = self._spans(codes, numbers, coarse)
        inside, anywhere = self._values.matches(codes, rows, spans)
        return PrivatePart(coarse, self._axes(codes, spans) if coarse else (), inside, anywhere)

    def _axes(self, codes: NDArray[np.int32], spans: Mapping[int, Span | None]) -> tuple[NDArray[np.int32], ...]:
        axes = []
        for j, (domain, at) in enumerate(zip(self._domains, self._at, strict=True)):
            own = int(codes[at]) if codes[at] >= 0 else domain.size
            first, last = spans.get(j, (own, own + 1)) or (0, domain.size)
            axis = np.arange(first, last, dtype=np.int32)
            axes.append(axis if first <= own < last else np.append(axis, np.int32(own)))
        return tuple(axes)

    def _form(self, j: int, code: int, number: float, rows: NDArray[np.int64], inside: int) -> Interval | Form | None:
        """Return the finest form that the policy allows for one attribute; None: homogeneous, and that suppresses."""
        forms, policy = self._forms(j, code, number), self._policy
        if not forms:
            return Form.WITHHELD
        if policy.rare_values == "withhold" and self._values.people(j, forms[0][1]) < policy.k:
            return Form.WITHHELD
        for form, _, alike in forms:
            if not self._homogeneous(j, alike, rows, inside):
                return form
            if policy.on_homogeneous == "suppress":
                return None
        return Form.WITHHELD

    def _forms(self, j: int, code: int, number: float) -> list[tuple[Interval | Form, Span, Span]]:
        """Return the possible forms, finest first, each with the codes it stands for and those that tell the same."""
        domain = self._domains[j]
        at = bin_of(domain, number)
        binned = [] if at is None else [(bin_part(domain, at), bin_codes(domain, at), bin_codes(domain, at))]
        if self._policy.private_values == "bins" and domain.attribute.bins is not None and not isnan(number):
            return [*binned]
        return [(Form.EXACT, (code, code + 1), self._values.close(j, code, number)), *binned]

    def _homogeneous(self, j: int, span: Span, rows: NDArray[np.int64], inside: int) -> bool:
        alpha = self._policy.alpha
        if alpha is None or not inside:
            return False
        share = self._values.people(j, span, rows) / inside
        everywhere = self._values.people(j, span) / self._population.n_people
        return share > alpha and share > self._policy.min_lift * everywhere

    def _spans(self, codes: NDArray[np.int32], numbers: NDArray[np.float64], coarse: Coarse) -> dict[int, Span | None]:
        spans: dict[int, Span | None] = {}
        for j, (name, at) in enumerate(zip(self._names, self._at, strict=True)):
            if name not in coarse:
                continue
            domain = self._domains[j]
            which = bin_of(domain, number_of(domain, int(codes[at]), float(numbers[at])))
            spans[j] = None if which is None or coarse[name] is Form.WITHHELD else bin_codes(domain, which)
        return spans


def number_of(domain: Domain, code: int, number: float) -> float:
    """Return the number that a code stands for, or the counterfactual's own where no row has it; NaN for none."""
    if domain.attribute.kind != "numeric" or not 0 <= code < len(domain.values):
        return number
    return float(domain.values[code])
