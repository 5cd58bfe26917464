"""What a person can change: which values an answer may have, by schema, call and query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import INVALID, UNKNOWN, Codes, Domain, Numbers, Rows
from cfk_plugin.data.encoded_table import EncodedTable, Encoder, whole_number
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.data.schema import Change
from cfk_plugin.errors import HostOnly, InputError, did_you_mean, quiet

Mask = NDArray[np.bool_]

Narrow = Callable[[int, Codes], Codes]
"""Returns, for the position of a query and codes of an attribute, the codes that are permitted."""


class Rule(NamedTuple):
    """What the schema and a call permit for one attribute, whatever the query.

    Attributes
    ----------
    change : Change
        How the value may differ from the query's.
    within : pair of numbers, or bool of shape (n_codes,), optional
        The permitted range of a numeric attribute, or a mask of the permitted codes of another one.
    never_advised : frozenset of str or None
        Values, as text, that are permitted only to a person who has them; None is a missing value.
    """

    change: Change
    within: tuple[float, float] | Mask | None
    never_advised: frozenset[str | None] = frozenset()

    @property
    def decides_on_change(self) -> bool:
        """Whether it says how the attribute may change, and not only which values are excluded."""
        return self.change != "any" or self.within is not None


_NO_RULE = Rule("any", None)

Rules = Mapping[str, Rule]


def rules_of(
    encoder: Encoder, features_to_vary: Any = "all", permitted_range: Any = None
) -> dict[str, Rule]:
    """Return a rule for each attribute that the schema or a call restricts; empty where all may
    change freely.

    Immutable and monotone attributes of the schema, and its values that are never advised, hold for
    every call; for its own settings see `KAnonymizer.explain`.
    """
    features = encoder.schema.features
    vary = _features_to_vary(features_to_vary, features)
    if permitted_range is not None and not isinstance(permitted_range, Mapping):
        raise InputError(
            "permitted_range must be a mapping of feature to range, got"
            f" {type(permitted_range).__name__}"
        )
    ranges = dict(permitted_range or {})
    _check_are_features("features_to_vary", vary, features)
    _check_are_features("permitted_range", ranges, features)
    rules = {}
    for name, domain in zip(features, encoder.columns, strict=True):
        within = _permitted(domain, ranges[name]) if name in ranges else None
        change: Change = domain.attribute.change if name in vary else "never"
        rule = Rule(change, within, frozenset(domain.attribute.never_advised))
        if rule.decides_on_change or rule.never_advised:
            rules[name] = rule
    return rules


def most_changes(max_changes: Any) -> int | None:
    """Return how many changes a call permits, None for any number; refused is anything else."""
    if max_changes is None:
        return None
    return whole_number("max_changes", max_changes)


def decided_features(
    features: Sequence[str], rules: Mapping[str, Rule], features_to_vary: Any = "all"
) -> frozenset[str]:
    """Return the features of which the schema or the call says how they may change.

    These are all features if the call lists those that may. A feature of which only some values are
    never advised is not among them.
    """
    is_listed = features_to_vary is not None and not isinstance(features_to_vary, str)
    if is_listed:
        return frozenset(features)
    return frozenset(name for name, rule in rules.items() if rule.decides_on_change)


def _features_to_vary(setting: Any, features: Sequence[str]) -> Sequence[str]:
    """Return the features that a call lists, which may be unknown; all if it does not list any."""
    if setting is None:
        return features
    if isinstance(setting, str):
        if setting == "all":
            return features
        raise InputError('features_to_vary must be "all" or a list of features, not one string')
    names = list(setting) if isinstance(setting, Iterable) else []
    if not names:
        raise InputError(
            'features_to_vary must be "all" or a list of at least one feature: nothing could change'
        )
    return names


def _check_are_features(parameter: str, names: Iterable[str], features: Sequence[str]) -> None:
    unknown = [str(name) for name in names if name not in features]
    if unknown:
        raise InputError(
            f"{parameter}: {', '.join(unknown)} is no feature; features are {', '.join(features)}"
            f"{did_you_mean(unknown, features)}"
        )


def _permitted(domain: Domain, setting: Any) -> tuple[float, float] | Mask:
    """Return what a call permits for one attribute, as `Rule.within`."""
    parameter = f"permitted_range of {domain.attribute.name!r}"
    if isinstance(setting, (str, Mapping)) or not isinstance(setting, Iterable):
        form = "[low, high]" if domain.is_numeric else "a list of values"
        raise InputError(f"{parameter} must be {form}")
    values = list(setting)
    if domain.is_numeric:
        return _permitted_range(domain, values, parameter)
    return _permitted_codes(domain, values, parameter)


def _permitted_codes(domain: Domain, values: list[Any], parameter: str) -> Mask:
    """Return a mask of the permitted codes; shape (n_codes,)."""
    if domain.is_open:
        raise InputError(
            f"{parameter}: the population has no rows here, so its values are not known; leave it"
            " out"
        )
    with quiet(f"{parameter} cannot be read", InputError):
        codes, _ = domain.encode_values(values)
    n_unknown = (codes < 0).sum()
    if not len(codes) or n_unknown:
        problem = "no value"
        if len(codes):
            problem = f"{n_unknown} values that the population does not have"
        raise InputError(f"{parameter} has {problem}; name at least one, and known ones alone")
    return np.isin(np.arange(domain.size), codes)


def _permitted_range(domain: Domain, values: list[Any], parameter: str) -> tuple[float, float]:
    """Return the lowest and the highest permitted number."""
    with quiet(f"{parameter} must be two numbers or dates", InputError):
        _, numbers = domain.encode_values(values)
        low, high = numbers.tolist()
        if domain.is_whole:
            low = float(np.ceil(low))
            high = float(np.floor(high))
    if not (isfinite(low) and isfinite(high)):
        raise InputError(
            f"{parameter} must be two finite numbers or dates, the lowest and the highest"
        )
    least, most = domain.attribute.bounds or (-inf, inf)
    if low > high:
        raise InputError(f"{parameter} is empty: no value lies in it")
    if low > most or high < least:
        raise InputError(f"{parameter} is outside of its declared bounds")
    return low, high


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistinctParts(HostOnly):
    """What several answers or regions release of one attribute, each distinct part once.

    Attributes
    ----------
    domain : Domain
    of : int64, shape (n_answers,)
        Position of each answer's distinct part.
    ends : float64, shape (3, n_distinct)
        The lowest and the highest number of each part, or code of a category, NaN if it has none;
        and 1 where a missing value is inside, otherwise 0.
    inside : bool, shape (n_distinct, n_codes)
        Which codes are inside. It has no columns for numbers, and where the categories are not
        known here.
    """

    domain: Domain
    of: Rows
    ends: Numbers
    inside: Mask

    @classmethod
    def build(cls, domain: Domain, parts: Sequence[Part]) -> DistinctParts:
        """Collect the parts of several answers."""
        position_of_part = {part: i for i, part in enumerate(dict.fromkeys(parts))}
        part_of_answer = np.array([position_of_part[part] for part in parts], dtype=np.int64)
        distinct = list(position_of_part)
        if _is_compared_by_number(domain):
            no_codes = np.empty((len(distinct), 0), dtype=bool)
            return cls(domain, part_of_answer, _ends_of_numbers(domain, distinct), no_codes)
        inside = np.zeros((len(distinct), domain.size), dtype=bool)
        for i, part in enumerate(distinct):
            inside[i] = domain.inside(part)
        return cls(domain, part_of_answer, _ends_of_codes(domain, inside), inside)

    def __len__(self) -> int:
        return len(self.of)

    def take(self, positions: Rows) -> DistinctParts:
        return replace(self, of=self.of[positions])

    def limited(self, rule: Rule) -> DistinctParts:
        """Keep only the categories that a call permits; numbers stay as they are."""
        if not isinstance(rule.within, np.ndarray):
            return self
        return self._restricted(rule.within)

    def advised(self, rule: Rule) -> DistinctParts:
        """Leave out the categories that are never advised; numbers stay as they are."""
        if not rule.never_advised or _is_compared_by_number(self.domain):
            return self
        return self._restricted(~self.domain.inside(rule.never_advised))

    def _restricted(self, is_kept: Mask) -> DistinctParts:
        """Keep only some codes, given by a mask of shape (n_codes,)."""
        inside = self.inside & is_kept
        return replace(self, ends=_ends_of_codes(self.domain, inside), inside=inside)


def _is_compared_by_number(domain: Domain) -> bool:
    """Return True for numbers, and for categories that are not known here: these have a token."""
    return domain.is_numeric or domain.is_open


def _ends_of_numbers(domain: Domain, parts: Sequence[Part]) -> Numbers:
    """Return the ends of parts as numbers; see `DistinctParts.ends`."""
    values: list[Any] = []
    has_missing: list[bool] = []
    for part in parts:
        if isinstance(part, Interval):
            values += [nan if part.low is None else part.low]
            values += [nan if part.high is None else part.high]
            has_missing.append(part.missing)
        else:
            value = next(iter(part), None)
            values += [nan if value is None else value] * 2
            has_missing.append(value is None)
    codes, numbers = domain.encode_values(values)
    ends = _numbers_of(domain, codes, numbers).reshape(-1, 2)
    low = ends[:, 0]
    high = ends[:, 1]
    if domain.is_whole:
        low = np.ceil(low)
        high = np.floor(high)
    return np.vstack([low, high, np.array(has_missing, dtype=np.float64)])


def _numbers_of(domain: Domain, codes: Codes, numbers: Numbers) -> Numbers:
    """Return numbers as the population has them; NaN for what is not a number."""
    is_known = (codes >= 0) & (codes < len(domain.values)) & domain.is_numeric
    if is_known.any():
        numbers = np.where(is_known, domain.values[np.where(is_known, codes, 0)], numbers)
    return np.where(codes == INVALID, nan, numbers)


def _ends_of_codes(domain: Domain, inside: Mask) -> Numbers:
    """Return the ends of parts as codes; see `DistinctParts`."""
    n_values = len(domain.values)
    is_value = inside[:, :n_values]
    has_value = is_value.any(axis=1)
    has_missing = inside[:, n_values:].any(axis=1)
    low = np.full(len(inside), nan)
    high = np.full(len(inside), nan)
    if n_values:
        low = np.where(has_value, np.argmax(is_value, axis=1), nan)
        high = np.where(has_value, n_values - 1 - np.argmax(is_value[:, ::-1], axis=1), nan)
    return np.vstack([low, high, has_missing])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _FactualValues(HostOnly):
    """The queries' own values of one attribute; all arrays have the shape (n_queries,)."""

    codes: Codes
    numbers: Numbers  # as the population has them; NaN for none
    is_missing: Mask
    is_known: Mask  # False for a missing value, and for one that the population does not have


@dataclass(frozen=True, eq=False, repr=False)
class Constraints(HostOnly):
    """Which values the answer to each query may have, by schema, call and query, and no row.

    An immutable attribute keeps the query's own value; a monotone one keeps it or moves in its
    direction; one with a permitted range has a value in that. A value that is never advised is
    permitted only to a query that has it. A missing or unreadable value has no direction. At most
    `max_changes` attributes change, if that is not None.
    """

    queries: EncodedTable
    rules: Mapping[str, Rule]
    max_changes: int | None = None

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def is_any(self) -> bool:
        """Whether there is any rule, or a limit on the number of changes."""
        return bool(self.rules) or self.max_changes is not None

    def take(self, positions: Rows) -> Constraints:
        return replace(self, queries=self.queries.take(positions))

    def only(self, names: Collection[str]) -> Constraints:
        """Return the constraints on some of the attributes."""
        if not self.rules:
            return self
        rules = {name: rule for name, rule in self.rules.items() if name in names}
        return replace(self, rules=rules)

    def admits_all(self, distinct_parts: Mapping[str, DistinctParts], answers: int) -> Mask:
        """Return a mask of the answers that each query may get; shape (n_queries, n_answers).

        A region must contain the query's own value of what cannot change, and a permitted value of
        all else. It may contain values that are not permitted as well.
        """
        may_get = np.ones((len(self), answers), dtype=bool)
        query = np.arange(len(self))[:, None]  # (n_queries, 1)
        for name in self.rules:
            parts = distinct_parts[name]
            distinct = np.arange(parts.ends.shape[1])[None, :]  # (1, n_distinct)
            may_get &= self._meets(name, parts, query, distinct)[:, parts.of]
        return may_get

    def admits_paired(self, distinct_parts: Mapping[str, DistinctParts]) -> Mask:
        """Return a mask of the queries that may get the answer at the same position; shape (n,)."""
        may_get = np.ones(len(self), dtype=bool)
        query = np.arange(len(self))
        for name in self.rules:
            may_get &= self._meets(name, distinct_parts[name], query, distinct_parts[name].of)
        return may_get

    def nearest(
        self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows
    ) -> tuple[Codes, Numbers]:
        """Return the permitted value nearest to each query within a part of a quasi-identifier.

        Of equally near values the first is taken.

        Parameters
        ----------
        name : str
        distinct_parts : DistinctParts
        query, part : int64, shape (n,)
            Positions of queries, and of distinct parts.

        Returns
        -------
        codes : int32, shape (n,)
            `UNKNOWN` for a number that no row has.
        numbers : float64, shape (n,)
        """
        rule = self.rules.get(name, _NO_RULE)
        parts = distinct_parts.limited(rule)
        if parts.domain.is_numeric:
            return self._nearest_number(name, parts, query, part)
        return self._nearest_category(name, parts, query, part)

    def _nearest_number(
        self, name: str, parts: DistinctParts, query: Rows, part: Rows
    ) -> tuple[Codes, Numbers]:
        """Do as `nearest` for a numeric attribute.

        A missing value stays missing if that is inside.
        """
        factual = self._factual(name)
        least, most = self._limits(name, factual)
        low, high, has_missing = parts.ends[:, part]
        low = np.maximum(low, least[query])
        high = np.minimum(high, most[query])
        factual_numbers = factual.numbers[query]
        inside = np.minimum(np.maximum(factual_numbers, low), high)
        numbers = np.where(np.isnan(factual_numbers), low, inside)
        stays_missing = factual.is_missing[query] & (has_missing > 0)
        return _coded(parts.domain, np.where(stays_missing, nan, numbers))

    def _nearest_category(
        self, name: str, parts: DistinctParts, query: Rows, part: Rows
    ) -> tuple[Codes, Numbers]:
        """Do as `nearest` for a category: the query's own if that is inside.

        Otherwise it is the nearest advised level of an ordinal attribute, or the first advised
        category.
        """
        rule = self.rules.get(name, _NO_RULE)
        domain = parts.domain
        factual = self._factual(name)
        factual_codes = factual.codes[query]
        advised = parts.advised(rule).inside
        nearest = np.argmax(advised, axis=1)[part]
        if domain.is_interval:
            levels = np.arange(len(domain.values))
            is_advised = advised[part][:, levels]  # (n, n_levels)
            distances = np.abs(levels - factual_codes[:, None]) + np.where(is_advised, 0.0, inf)
            distances[~_in_direction(rule.change, levels, factual_codes[:, None])] = inf
            has_level = factual.is_known[query] & np.isfinite(distances).any(axis=1)
            nearest = np.where(has_level, np.argmin(distances, axis=1), nearest)
        is_own_inside = (factual_codes >= 0) & parts.inside[part, np.maximum(factual_codes, 0)]
        codes = np.where(is_own_inside, factual_codes, nearest).astype(np.int32)
        return codes, np.full(len(factual_codes), nan)

    def nearest_to(
        self, name: str, query: Rows, codes: Codes, numbers: Numbers
    ) -> tuple[Codes, Numbers, Mask]:
        """Return the permitted value that is nearest to each coded value.

        A category that is not permitted becomes the query's own, or else the first permitted one.

        Parameters
        ----------
        name : str
            An attribute with a rule.
        query : int64, shape (n,)
            Position of the query of each value.
        codes, numbers : shape (n,)

        Returns
        -------
        codes : int32, shape (n,)
        numbers : float64, shape (n,)
        is_other : bool, shape (n,)
            True where the value is not the given one, which is not permitted.
        """
        queries, row = np.unique(query, return_inverse=True)
        distinct = self.take(queries)
        if self.queries.encoder.domains[name].is_numeric:
            return distinct._number_nearest_to(name, row, codes, numbers)
        return distinct._category_nearest_to(name, row, codes, numbers)

    def _number_nearest_to(
        self, name: str, query: Rows, codes: Codes, numbers: Numbers
    ) -> tuple[Codes, Numbers, Mask]:
        """Do as `nearest_to` for a numeric attribute."""
        rule = self.rules[name]
        domain = self.queries.encoder.domains[name]
        factual = self._factual(name)
        low, high = self._limits(name, factual)
        least = low[query]
        most = high[query]
        instead_of_missing = np.where(np.isfinite(least), least, most)
        # Where a missing value is never advised and no number is excluded, it is the query's own.
        has_no_end = np.isinf(instead_of_missing)
        instead_of_missing = np.where(has_no_end, factual.numbers[query], instead_of_missing)
        exact_numbers = _numbers_of(domain, codes, numbers)
        filled_numbers = np.where(np.isnan(exact_numbers), instead_of_missing, exact_numbers)
        permitted = np.minimum(np.maximum(filled_numbers, least), most)
        is_missing = codes == domain.missing_code
        stays_missing = is_missing & _permits_missing(rule, factual)[query]
        near_codes, near_numbers = _coded(domain, np.where(stays_missing, nan, permitted))
        is_other_number = (near_codes == UNKNOWN) & (near_numbers != numbers)
        return near_codes, near_numbers, (near_codes != codes) | is_other_number

    def _category_nearest_to(
        self, name: str, query: Rows, codes: Codes, numbers: Numbers
    ) -> tuple[Codes, Numbers, Mask]:
        """Do as `nearest_to` for a category."""
        rule = self.rules[name]
        domain = self.queries.encoder.domains[name]
        factual = self._factual(name)
        factual_codes = factual.codes
        permitted = self.permitted(name)  # (n_queries, n_codes)
        rows = np.arange(len(self))
        keeps_own = (factual_codes >= 0) & permitted[rows, np.maximum(factual_codes, 0)]
        if domain.is_open and rule.within is None:  # a category that is not known here
            keeps_own |= factual_codes == UNKNOWN
        instead = np.where(keeps_own, factual_codes, np.argmax(permitted, axis=1))
        is_own = (codes == UNKNOWN) & keeps_own[query] & (numbers == factual.numbers[query])
        is_permitted = (codes >= 0) & permitted[query, np.maximum(codes, 0)]
        is_other = ~is_permitted & ~is_own
        return np.where(is_other, instead[query], codes).astype(np.int32), numbers, is_other

    def narrowed(
        self, distinct_parts: Mapping[str, DistinctParts]
    ) -> tuple[dict[str, Any], dict[str, Narrow]]:
        """Return, by attribute, each query's nearest permitted value, and a function.

        The function keeps the codes permitted to a query, which is given by its position. It adds
        ``domain.size`` for a nearest value without a code.
        """
        columns: dict[str, Any] = {}
        narrow: dict[str, Narrow] = {}
        for name, parts in distinct_parts.items():
            codes, numbers = self.nearest(name, parts, np.arange(len(self)), parts.of)
            columns[name] = parts.domain.column(codes, numbers)
            narrow[name] = partial(_narrowed, self.permitted(name), codes == UNKNOWN)
        return columns, narrow

    def permitted(self, name: str) -> Mask:
        """Return a mask of the codes of an attribute that each query may have.

        The shape is (n_queries, n_codes).
        """
        rule = self.rules.get(name, _NO_RULE)
        domain = self.queries.encoder.domains[name]
        factual = self._factual(name)
        values = domain.values
        if domain.is_numeric:
            low, high = self._limits(name, factual)
            is_permitted = (values >= low[:, None]) & (values <= high[:, None])
        else:
            levels = np.arange(len(values))
            is_permitted = _in_direction(rule.change, levels, factual.codes[:, None])
            is_permitted &= (factual.is_known | (rule.change == "any"))[:, None]
        n_missing_codes = domain.size - len(values)
        permits_missing = _permits_missing(rule, factual)[:, None]
        is_permitted = np.hstack(
            [is_permitted, np.repeat(permits_missing, n_missing_codes, axis=1)]
        )
        if rule.never_advised:
            is_own = np.arange(domain.size) == factual.codes[:, None]
            is_permitted &= is_own | ~domain.inside(rule.never_advised)
        if isinstance(rule.within, np.ndarray):
            is_permitted = is_permitted & rule.within
        return is_permitted

    def _meets(self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows) -> Mask:
        """Return a mask of the distinct parts that have a value permitted to the query.

        Positions of queries and of distinct parts are broadcast together, which gives the shape.
        """
        rule = self.rules[name]
        factual = self._factual(name)
        parts = distinct_parts.limited(rule)
        has_missing = parts.ends[2, part] > 0
        meets_missing = has_missing & _permits_missing(rule, factual)[query]
        if _is_compared_by_number(parts.domain):
            return np.asarray(meets_missing | self._meets_number(name, distinct_parts, query, part))
        factual_codes = factual.codes[query]
        keeps_own = factual.is_known[query] & parts.inside[part, np.maximum(factual_codes, 0)]
        low, high, _ = parts.advised(rule).ends[:, part]
        if rule.change == "any":
            meets = ~np.isnan(low)
        elif rule.change == "never":
            meets = keeps_own
        elif rule.change == "increase":
            meets = factual.is_known[query] & (high >= factual_codes)
        else:
            meets = factual.is_known[query] & (low <= factual_codes)
        return np.asarray(meets_missing | keeps_own | meets)

    def _meets_number(
        self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows
    ) -> Mask:
        """Do as `_meets` for ranges of numbers, and for single categories known by their tokens."""
        rule = self.rules[name]
        domain = distinct_parts.domain
        factual = self._factual(name)
        low, high, _ = distinct_parts.ends[:, part]
        least, most = self._limits(name, factual)
        meets = np.maximum(low, least[query]) <= np.minimum(high, most[query])
        if not domain.is_numeric and rule.never_advised:
            _, tokens = domain.encode_values([*rule.never_advised])
            meets &= ~np.isin(low, tokens) | (low == factual.numbers[query])
        return np.asarray(meets)

    def _factual(self, name: str) -> _FactualValues:
        """Return the queries' own values of an attribute."""
        encoder = self.queries.encoder
        domain = encoder.domains[name]
        j = encoder.schema.features.index(name)
        codes = self.queries.codes[:, j]
        is_missing = (codes == domain.missing_code) & domain.has_missing
        return _FactualValues(
            codes=codes,
            numbers=_numbers_of(domain, codes, self.queries.numbers[:, j]),
            is_missing=is_missing,
            is_known=(codes >= 0) & ~is_missing,
        )

    def _limits(self, name: str, factual: _FactualValues) -> tuple[Numbers, Numbers]:
        """Return the lowest and the highest number that each query may have, NaN if none.

        Both arrays have the shape (n_queries,).
        """
        rule = self.rules.get(name, _NO_RULE)
        least, most = rule.within if isinstance(rule.within, tuple) else (-inf, inf)
        low = np.full(len(self), least)
        high = np.full(len(self), most)
        if rule.change in ("increase", "never"):
            low = np.maximum(low, factual.numbers)
        if rule.change in ("decrease", "never"):
            high = np.minimum(high, factual.numbers)
        return low, high


def _narrowed(permitted: Mask, has_no_code: Mask, query: int, codes: Codes) -> Codes:
    """Return the codes that a query may have; see `Constraints.narrowed`.

    `permitted` has the shape (n_queries, n_codes), `has_no_code` (n_queries,).
    """
    n_codes = permitted.shape[1]
    if len(codes) == 1:  # permitted, or the answer would not be
        return codes
    is_permitted = (codes < n_codes) & permitted[query][np.minimum(codes, n_codes - 1)]
    permitted_codes: Codes = codes[is_permitted]
    if has_no_code[query]:
        return np.append(permitted_codes, np.int32(n_codes))
    return permitted_codes


def _coded(domain: Domain, numbers: Numbers) -> tuple[Codes, Numbers]:
    """Return codes of numbers, and the numbers; all arrays have the shape (n,).

    NaN is coded as missing, a number that no row has as `UNKNOWN`.
    """
    positions = np.searchsorted(domain.values, numbers).clip(max=max(len(domain.values) - 1, 0))
    is_known = np.zeros(len(numbers), dtype=bool)
    if len(domain.values):
        is_known = domain.values[positions] == numbers
    codes = np.where(is_known, positions, UNKNOWN)
    codes = np.where(np.isnan(numbers), domain.missing_code, codes)
    return codes.astype(np.int32), numbers


def _permits_missing(rule: Rule, factual: _FactualValues) -> Mask:
    """Return a mask of the queries that may have a missing value; shape (n_queries,)."""
    is_for_all = rule.change == "any" and None not in rule.never_advised
    has_range = isinstance(rule.within, tuple)
    return (factual.is_missing | is_for_all) & (not has_range)


def _in_direction(change: Change, levels: Rows, factual_codes: Codes) -> Mask:
    """Return a mask of the levels that a change from the query's own may lead to, broadcast."""
    if change == "any":
        return np.ones(np.broadcast(levels, factual_codes).shape, dtype=bool)
    if change == "increase":
        return np.asarray(levels >= factual_codes)
    if change == "decrease":
        return np.asarray(levels <= factual_codes)
    return np.asarray(levels == factual_codes)
