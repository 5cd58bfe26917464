"""What a person can change: which values an answer may have, by schema, call and query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.columns import Change
from cfk_plugin.data.domain import INVALID, UNKNOWN, Codes, Domain, Numbers, Rows
from cfk_plugin.data.encoded_table import EncodedTable, Encoder, whole_number
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.errors import HostOnly, InputError, did_you_mean, quiet

Mask = NDArray[np.bool_]


Narrow = Callable[[int, Codes], Codes]


class Rule(NamedTuple):
    """What the schema and a call permit for one attribute, whoever asks."""

    change: Change
    # a range of numbers, or whether each code is permitted
    within: tuple[float, float] | Mask | None
    # values, as text, that are permitted only to a person who has them; None is a missing one
    never_advised: frozenset[str | None] = frozenset()

    @property
    def decides_on_change(self) -> bool:
        """Whether it says how the attribute may change, and not only which values are excluded."""
        return self.change != "any" or self.within is not None


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
    vary = features if features_to_vary is None else _names(features_to_vary, features)
    if permitted_range is not None and not isinstance(permitted_range, Mapping):
        raise InputError(
            "permitted_range must be a mapping of feature to range, got"
            f" {type(permitted_range).__name__}"
        )
    ranges = dict(permitted_range or {})
    for what, names in {"features_to_vary": vary, "permitted_range": ranges}.items():
        if unknown := [str(name) for name in names if name not in features]:
            raise InputError(
                f"{what}: {', '.join(unknown)} is no feature; features are {', '.join(features)}"
                f"{did_you_mean(unknown, features)}"
            )
    rules = {}
    for name, domain in zip(features, encoder.columns, strict=True):
        within = _within(domain, ranges[name]) if name in ranges else None
        change = domain.attribute.change if name in vary else "never"
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


def _names(given: Any, features: Sequence[str]) -> Sequence[str]:
    if isinstance(given, str):
        if given == "all":
            return features
        raise InputError('features_to_vary must be "all" or a list of features, not one string')
    if not isinstance(given, Iterable) or not (names := list(given)):
        raise InputError(
            'features_to_vary must be "all" or a list of at least one feature: nothing could change'
        )
    return names


def _within(domain: Domain, given: Any) -> tuple[float, float] | Mask:
    attribute = domain.attribute
    what = f"permitted_range of {attribute.name!r}"
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise InputError(
            f"{what} must be {'[low, high]' if domain.is_numeric else 'a list of values'}"
        )
    values = list(given)
    if not domain.is_numeric:
        if domain.is_open:
            raise InputError(
                f"{what}: the population has no rows here, so its values are not known; leave"
                " it out"
            )
        with quiet(f"{what} cannot be read", InputError):
            codes = domain.encode_values(values)[0]
        if not len(codes) or (codes < 0).any():
            found = (
                f"{(codes < 0).sum()} values that the population does not have"
                if len(codes)
                else "no value"
            )
            raise InputError(f"{what} has {found}; name at least one, and known ones alone")
        return np.isin(np.arange(domain.size), codes)
    with quiet(f"{what} must be two numbers or dates", InputError):
        low, high = domain.encode_values(values)[1].tolist()
        if domain.is_whole:
            low, high = float(np.ceil(low)), float(np.floor(high))
    if not (isfinite(low) and isfinite(high)):
        raise InputError(f"{what} must be two finite numbers or dates, the lowest and the highest")
    least, most = attribute.bounds or (-inf, inf)
    if low > high or low > most or high < least:
        raise InputError(
            f"{what} is"
            f" {'empty: no value lies in it' if low > high else 'outside of its declared bounds'}"
        )
    return low, high


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistinctParts(HostOnly):
    """What several answers say of one attribute, each distinct part once; the part None says
    nothing.
    """

    domain: Domain
    of: Rows  # position of each answer's distinct part
    # shape (3, distinct): lowest and highest, and 1 where a missing value is inside; codes of
    # categories
    ends: Numbers
    # shape (distinct, codes); without codes for numbers, and for categories that are not known here
    inside: Mask

    @classmethod
    def build(cls, domain: Domain, parts: Sequence[Part | None]) -> DistinctParts:
        number = {part: at for at, part in enumerate(dict.fromkeys(parts))}
        of = np.array([number[part] for part in parts], dtype=np.int64)
        if _by_number(domain):
            return cls(domain, of, _ends(domain, [*number]), np.empty((len(number), 0), dtype=bool))
        tables = [
            np.zeros(domain.size, dtype=bool) if part is None else domain.inside(part)
            for part in number
        ]
        inside = np.array(tables, dtype=bool).reshape(len(number), domain.size)
        return cls(domain, of, _code_ends(domain, inside), inside)

    def __len__(self) -> int:
        return len(self.of)

    @property
    def is_silent(self) -> Mask:
        """For each distinct part, whether it says nothing."""
        return np.asarray(np.isnan(self.ends[0]) & (self.ends[2] == 0))

    def take(self, at: Rows) -> DistinctParts:
        return DistinctParts(self.domain, self.of[at], self.ends, self.inside)

    def limited(self, rule: Rule) -> DistinctParts:
        """Keep only the categories that a call permits; numbers stay as they are."""
        if not isinstance(rule.within, np.ndarray):
            return self
        return self._restricted(rule.within)

    def advised(self, rule: Rule) -> DistinctParts:
        """Leave out the categories that are never advised; numbers stay as they are."""
        if not rule.never_advised or _by_number(self.domain):
            return self
        return self._restricted(~self.domain.inside(rule.never_advised))

    def _restricted(self, codes: Mask) -> DistinctParts:
        inside = self.inside & codes
        return DistinctParts(self.domain, self.of, _code_ends(self.domain, inside), inside)


def _by_number(domain: Domain) -> bool:
    return domain.is_numeric or domain.is_open  # a category that is not known here has a token


def _ends(domain: Domain, parts: Sequence[Part | None]) -> Numbers:
    ranges = [(p.low, p.high, p.missing) if isinstance(p, Interval) else _single(p) for p in parts]
    values = [nan if end is None else end for low, high, _ in ranges for end in (low, high)]
    missing = [float(is_inside) for *_, is_inside in ranges]
    low, high = _numbers(domain, *domain.encode_values(values)).reshape(-1, 2).T
    return np.vstack(
        [np.ceil(low), np.floor(high), missing] if domain.is_whole else [low, high, missing]
    )


def _numbers(domain: Domain, codes: Codes, numbers: Numbers) -> Numbers:
    """Return numbers as the population has them; NaN for what is not a number."""
    known = (codes >= 0) & (codes < len(domain.values)) & domain.is_numeric
    if known.any():
        numbers = np.where(known, domain.values[np.where(known, codes, 0)], numbers)
    return np.where(codes == INVALID, nan, numbers)


def _single(part: frozenset[Any] | None) -> tuple[Any, Any, bool]:
    value = next(iter(part)) if part else None
    return value, value, part is not None and value is None


def _code_ends(domain: Domain, inside: Mask) -> Numbers:
    count = len(domain.values)
    values, missing = inside[:, :count], inside[:, count:].any(axis=1)
    ends = (
        [np.argmax(values, axis=1), count - 1 - np.argmax(values[:, ::-1], axis=1)]
        if count
        else np.zeros((2, 1))
    )
    return np.vstack([np.where(values.any(axis=1), ends, nan), missing])


class _Own(NamedTuple):
    codes: Codes
    numbers: Numbers  # as the population has them; NaN for none
    missing: Mask
    known: Mask  # whether it is a value of the population, and not missing


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

    def take(self, at: Rows) -> Constraints:
        return replace(self, queries=self.queries.take(at))

    def only(self, names: Collection[str]) -> Constraints:
        if not self.rules:
            return self
        rules = {name: rule for name, rule in self.rules.items() if name in names}
        return replace(self, rules=rules)

    def admits_all(self, distinct_parts: Mapping[str, DistinctParts], answers: int) -> Mask:
        """Say for each query and answer whether the query may get the answer; shape (queries,
        answers).

        A region must contain the query's own value of what cannot change, and a permitted value of
        all else. It may contain values that are not permitted as well.
        """
        found, query = np.ones((len(self), answers), dtype=bool), np.arange(len(self))[:, None]
        for name in self.rules:
            distinct = np.arange(distinct_parts[name].ends.shape[1])[None, :]
            found &= self._meets(name, distinct_parts[name], query, distinct)[
                :, distinct_parts[name].of
            ]
        return found

    def admits_paired(self, distinct_parts: Mapping[str, DistinctParts]) -> Mask:
        """Say for each query whether it may get the answer at the same position."""
        found, query = np.ones(len(self), dtype=bool), np.arange(len(self))
        for name in self.rules:
            found &= self._meets(name, distinct_parts[name], query, distinct_parts[name].of)
        return found

    def nearest(
        self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows
    ) -> tuple[Codes, Numbers]:
        """Return the permitted value nearest to each query within a part of a quasi-identifier:
        code and number.

        The code is `UNKNOWN` for a number that no row has; of equally near values the first is
        taken. Queries and parts are paired.
        """
        rule, own, domain = (
            self.rules.get(name, Rule("any", None)),
            self._own(name),
            distinct_parts.domain,
        )
        distinct_parts = distinct_parts.limited(rule)
        codes, (low, high, missing) = own.codes[query], distinct_parts.ends[:, part]
        if domain.is_numeric:
            least, most = self._limits(name, own)
            low, high, number = (
                np.maximum(low, least[query]),
                np.minimum(high, most[query]),
                own.numbers[query],
            )
            number = np.where(np.isnan(number), low, np.minimum(np.maximum(number, low), high))
            return _coded(domain, np.where(own.missing[query] & (missing > 0), nan, number))
        inside, advised = distinct_parts.inside, distinct_parts.advised(rule).inside
        near = np.argmax(advised, axis=1)[part]
        if domain.is_interval:
            levels = np.arange(len(domain.values))
            away = np.abs(levels - codes[:, None]) + np.where(advised[part][:, levels], 0.0, inf)
            away[~_in_direction(rule.change, levels, codes[:, None])] = inf
            near = np.where(
                own.known[query] & np.isfinite(away).any(axis=1), np.argmin(away, axis=1), near
            )
        is_inside = (codes >= 0) & inside[part, np.maximum(codes, 0)]
        return np.where(is_inside, codes, near).astype(np.int32), np.full(len(codes), nan)

    def nearest_to(
        self, name: str, query: Rows, codes: Codes, numbers: Numbers
    ) -> tuple[Codes, Numbers, Mask]:
        """Return, for each query, the permitted value nearest to the coded value, and whether it is
        another one.

        A category that is not permitted becomes the query's own, or else the first permitted one.
        """
        which, at = np.unique(query, return_inverse=True)
        limits, domain = self.take(which), self.queries.encoder.domains[name]
        rule, own = self.rules[name], limits._own(name)
        if domain.is_numeric:
            (low, high), value = limits._limits(name, own), _numbers(domain, codes, numbers)
            stays, least = (codes == domain.missing_code) & _permits_missing(rule, own)[at], low[at]
            end = np.where(np.isfinite(least), least, high[at])
            # where a missing value is never advised and no number is excluded, the query's own
            end = np.where(np.isinf(end), own.numbers[at], end)
            value = np.where(np.isnan(value), end, value)
            near, number = _coded(
                domain, np.where(stays, nan, np.minimum(np.maximum(value, least), high[at]))
            )
            return near, number, (near != codes) | ((near == UNKNOWN) & (number != numbers))
        allowed, mine = limits.permitted(name), np.maximum(own.codes, 0)
        keeps = allowed[np.arange(len(limits)), mine] & (own.codes >= 0)
        if domain.is_open and rule.within is None:  # a category that is not known here
            keeps |= own.codes == UNKNOWN
        instead = np.where(keeps, own.codes, np.argmax(allowed, axis=1))
        is_own = (codes == UNKNOWN) & keeps[at] & (numbers == own.numbers[at])
        is_other = ((codes < 0) | ~allowed[at, np.maximum(codes, 0)]) & ~is_own
        return np.where(is_other, instead[at], codes).astype(np.int32), numbers, is_other

    def narrowed(
        self, distinct_parts: Mapping[str, DistinctParts]
    ) -> tuple[dict[str, Any], dict[str, Narrow]]:
        """Return, by attribute, the nearest permitted values, and a function that keeps the codes
        permitted to a query.

        The function takes the query's position and codes; it adds ``domain.size`` for a nearest
        value without a code.
        """
        columns, narrow = dict[str, Any](), dict[str, Narrow]()
        for name, offered in distinct_parts.items():
            codes, numbers = self.nearest(name, offered, np.arange(len(self)), offered.of)
            columns[name] = offered.domain.column(codes, numbers)
            narrow[name] = partial(_narrowed, self.permitted(name), codes == UNKNOWN)
        return columns, narrow

    def permitted(self, name: str) -> Mask:
        """Say for each query and each code of an attribute whether the query may have it; shape
        (queries, codes).
        """
        rule, own, domain = (
            self.rules.get(name, Rule("any", None)),
            self._own(name),
            self.queries.encoder.domains[name],
        )
        values = domain.values
        if domain.is_numeric:
            low, high = self._limits(name, own)
            found = (values >= low[:, None]) & (values <= high[:, None])
        else:
            found = _in_direction(rule.change, np.arange(len(values)), own.codes[:, None])
            found &= (own.known | (rule.change == "any"))[:, None]
        missing = np.repeat(_permits_missing(rule, own)[:, None], domain.size - len(values), axis=1)
        found = np.hstack([found, missing])
        if rule.never_advised:
            is_own = np.arange(domain.size) == own.codes[:, None]
            found &= is_own | ~domain.inside(rule.never_advised)
        return found & rule.within if isinstance(rule.within, np.ndarray) else found

    def _meets(self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows) -> Mask:
        """Say for queries and parts, broadcast together, whether the part has a value permitted to
        the query.
        """
        rule, own = self.rules[name], self._own(name)
        missing = (distinct_parts.limited(rule).ends[2, part] > 0) & _permits_missing(rule, own)[
            query
        ]
        if _by_number(distinct_parts.domain):
            return np.asarray(missing | self._meets_number(name, distinct_parts, query, part))
        distinct_parts = distinct_parts.limited(rule)
        code = own.codes[query]
        keeps_own = own.known[query] & distinct_parts.inside[part, np.maximum(code, 0)]
        low, high, _ = distinct_parts.advised(rule).ends[:, part]
        if rule.change == "any":
            fits = ~np.isnan(low)
        elif rule.change == "never":
            fits = keeps_own
        else:
            fits = own.known[query] & (high >= code if rule.change == "increase" else low <= code)
        return np.asarray(missing | keeps_own | fits)

    def _meets_number(
        self, name: str, distinct_parts: DistinctParts, query: Rows, part: Rows
    ) -> Mask:
        """Do as `_meets` for ranges of numbers, and for single categories that are known by their
        tokens.
        """
        rule, own, domain = self.rules[name], self._own(name), distinct_parts.domain
        low, high, _ = distinct_parts.ends[:, part]
        least, most = self._limits(name, own)
        fits = np.maximum(low, least[query]) <= np.minimum(high, most[query])
        if not domain.is_numeric and rule.never_advised:
            tokens = domain.encode_values([*rule.never_advised])[1]
            fits &= ~np.isin(low, tokens) | (low == own.numbers[query])
        return np.asarray(fits)

    def _own(self, name: str) -> _Own:
        encoder = self.queries.encoder
        at, domain = encoder.schema.features.index(name), encoder.domains[name]
        codes, numbers = self.queries.codes[:, at], self.queries.numbers[:, at]
        missing = (codes == domain.missing_code) & domain.has_missing
        known = (codes >= 0) & ~missing
        return _Own(codes, _numbers(domain, codes, numbers), missing, known)

    def _limits(self, name: str, own: _Own) -> tuple[Numbers, Numbers]:
        """Return the lowest and the highest number that each query may have, NaN where there is
        none.
        """
        rule = self.rules.get(name, Rule("any", None))
        change = rule.change
        low, high = (
            np.full(len(self), end)
            for end in (rule.within if isinstance(rule.within, tuple) else (-inf, inf))
        )
        low = np.maximum(low, own.numbers) if change in ("increase", "never") else low
        high = np.minimum(high, own.numbers) if change in ("decrease", "never") else high
        return low, high


def _narrowed(permitted: Mask, is_other: Mask, query: int, codes: Codes) -> Codes:
    size = permitted.shape[1]
    if len(codes) == 1:  # permitted, or the answer would not be
        return codes
    kept = codes[(codes < size) & permitted[query][np.minimum(codes, size - 1)]]
    return np.append(kept, np.int32(size)) if is_other[query] else kept


def _coded(domain: Domain, numbers: Numbers) -> tuple[Codes, Numbers]:
    """Return codes of numbers, and the numbers.

    NaN is coded as missing, a number that no row has as `UNKNOWN`.
    """
    at = np.searchsorted(domain.values, numbers).clip(max=max(len(domain.values) - 1, 0))
    is_known = (
        domain.values[at] == numbers if len(domain.values) else np.zeros(len(numbers), dtype=bool)
    )
    codes = np.where(np.isnan(numbers), domain.missing_code, np.where(is_known, at, UNKNOWN))
    return codes.astype(np.int32), numbers


def _permits_missing(rule: Rule, own: _Own) -> Mask:
    is_for_all = rule.change == "any" and None not in rule.never_advised
    return (own.missing | is_for_all) & (not isinstance(rule.within, tuple))


def _in_direction(change: Change, levels: Rows, own: Codes) -> Mask:
    if change == "any":
        return np.ones(np.broadcast(levels, own).shape, dtype=bool)
    return (
        levels >= own
        if change == "increase"
        else levels <= own
        if change == "decrease"
        else levels == own
    )
