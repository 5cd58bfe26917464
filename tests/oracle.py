"""Recount explanations in plain pandas, and say in sentences what is wrong with them.

The oracle reads what a recipient reads: the JSON of an `Explanations`. It counts with the training
table, the model and the queries, and imports nothing of the product. A test asserts that
`find_faults` returns an empty list.

Every rule is a function that yields sentences about one explanation. Several rows of one person
count once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import ceil, floor, inf, prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Content = Mapping[str, Any]  # JSON of one explanation

MOST_COMBINATIONS = 10_000  # of a region; if there are more, as many are drawn
TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What an answer may ask of a person.

    Attributes
    ----------
    immutable : sequence of str
    monotone : mapping of feature to "increase" or "decrease"
    permitted_range : mapping of feature to (low, high), or to a list of categories
    never_advise : mapping of feature to values that no one is told to change to
    levels : mapping of ordinal feature to its levels, in order
    max_changes : int, optional
    """

    immutable: Sequence[str] = ()
    monotone: Mapping[str, str] = field(default_factory=dict)
    permitted_range: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    never_advise: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_changes: int | None = None

    def limits(self, name: str, factual: Any) -> tuple[Any, Any]:
        """Return the lowest and the highest number or date that a person may change to.

        A missing factual value is neither below nor above any number.
        """
        low, high = self.permitted_range.get(name, (-inf, inf))
        if pd.isna(factual):
            return low, high
        direction = self.monotone.get(name)
        if name in self.immutable or direction == "increase":
            low = factual if low == -inf else max(low, factual)
        if name in self.immutable or direction == "decrease":
            high = factual if high == inf else min(high, factual)
        return low, high

    def permits(self, name: str, value: Any, factual: Any) -> bool:
        """Return whether a person with the factual value may be told to change to a value."""
        is_same = _is_equal(value, factual)
        if name in self.immutable or is_same:
            return is_same
        if value in self.never_advise.get(name, ()):
            return False
        if isinstance(value, str):
            return self._permits_category(name, value, factual)
        if pd.isna(value):
            return name not in self.permitted_range
        low, high = self.limits(name, factual)
        is_above = low == -inf or value >= low
        is_below = high == inf or value <= high
        return bool(is_above and is_below)

    def _permits_category(self, name: str, value: str, factual: Any) -> bool:
        if name in self.permitted_range and value not in self.permitted_range[name]:
            return False
        if name not in self.monotone or factual not in self.levels[name]:
            return True
        step = self.levels[name].index(value) - self.levels[name].index(factual)
        return step >= 0 if self.monotone[name] == "increase" else step <= 0


@dataclass(frozen=True, kw_only=True)
class World:
    """What the data holder knows, and what the policy promises.

    Attributes
    ----------
    train : DataFrame
        The training table: features, and the column `subject` if there is one.
    quasi_identifiers : sequence of str
    predict : callable
        Returns the model's labels of rows of features.
    desired : callable
        From labels and a query's own label to a mask of the desired ones.
    lead : callable, optional
        Returns how sure the model is of the desired outcome, from 0 at the border to 1. The margin
        is checked with it, for outcomes that do not depend on the query.
    k : int
    guarantee : {"catalogue", "lookup"}
    least_pureness : float
    l : int, optional
    t : float, optional
        Checked in lookup mode, where everyone inside the region counts.
    sensitive : sequence of str
    subject : str, optional
        Column that names the person of a row.
    hierarchies : mapping of feature to {value: [parent, grandparent, ...]}
    weights : mapping of quasi-identifier to its share of NCP; equal without it
    rules : Rules
    """

    train: pd.DataFrame
    quasi_identifiers: Sequence[str]
    predict: Callable[[pd.DataFrame], Any]
    desired: Callable[[Any, Any], Any]
    k: int
    lead: Callable[[pd.DataFrame], Any] | None = None
    guarantee: str = "catalogue"
    least_pureness: float = 0.5
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    sensitive: Sequence[str] = ()
    subject: str | None = None
    hierarchies: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    weights: Mapping[str, float] | None = None
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The features of the training table, with positions as index."""
        features = [name for name in self.train if name != self.subject]
        return self.train[features].reset_index(drop=True)

    @cached_property
    def people(self) -> pd.Series:
        """The person of each row."""
        if self.subject is None:
            return pd.Series(range(len(self.train)))
        return self.train[self.subject].reset_index(drop=True)

    @cached_property
    def private(self) -> list[str]:
        """The features that are not quasi-identifiers."""
        return [name for name in self.rows if name not in self.quasi_identifiers]

    @cached_property
    def labels(self) -> NDArray[Any]:
        """The model's label of each training row."""
        return np.asarray(self.predict(self.rows))

    def count(self, is_counted: Mask) -> int:
        """Return the number of different people in some rows."""
        return int(self.people[is_counted].nunique())

    def is_inside(self, region: Mapping[str, Any]) -> Mask:
        """Return which training rows fit a region."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, part in region.items():
            mask &= is_inside(part, self.rows[name])
        return mask

    def has_values(self, values: Mapping[str, Any]) -> Mask:
        """Return which training rows have all of some private values."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, value in values.items():
            mask &= is_inside({"kind": "set", "values": [value]}, self.rows[name])
        return mask

    def with_values(self, rows: pd.DataFrame, values: Mapping[str, Any]) -> pd.DataFrame:
        """Return rows whose private values are replaced, with the dtypes of the training table."""
        columns = {
            name: _read(self.rows[name], [values[name]] * len(rows))
            if name in values
            else rows[name]
            for name in self.rows
        }
        columns = {name: pd.Series(column.to_numpy()) for name, column in columns.items()}
        return _with_dtypes(pd.DataFrame(columns), self.rows)

    def accepts(self, rows: pd.DataFrame, outcome: Content | None, own: Any) -> Mask:
        """Return which rows have the outcome that an explanation states.

        Without a stated outcome, that is the desired one of a query with the label `own`.
        """
        labels = np.asarray(self.predict(rows))
        if outcome is None:
            return np.asarray(self.desired(labels, own), dtype=bool)
        return _meets(labels, outcome)

    def is_sure(self, rows: pd.DataFrame, outcome: Content | None, margin: float) -> Mask:
        """Return which rows have the stated outcome with the margin."""
        mask = self.accepts(rows, outcome, None)
        if self.lead is not None and margin > 0:
            mask &= np.asarray(self.lead(rows)) >= margin - TOLERANCE
        return mask


def find_faults(
    release: Any,
    world: World,
    queries: pd.DataFrame | None = None,
    counterfactuals: pd.DataFrame | None = None,
    most: int | None = None,
) -> list[str]:
    """Return what is wrong with a release, one sentence per fault; an empty list if nothing is.

    Withheld explanations are not looked at: a release of nothing has no fault.

    Parameters
    ----------
    release : Explanations, or its JSON as text
    world : World
    queries : DataFrame, optional
        The rows that were asked about. Without them the release is a published catalogue.
    counterfactuals : DataFrame, optional
        In lookup mode, what the explainer proposed for each query.
    most : int, optional
        Recount at most so many explanations, evenly spread.
    """
    contents = _released(release)
    faults: list[str] = []
    step = 1 if most is None else max(ceil(len(contents) / most), 1)
    for content in contents[::step]:
        rules = [*people_rules(world, content), *figure_rules(world, content)]
        rules += sensitive_rules(world, content)
        if queries is None:
            rules += entry_rules(world, content)
        else:
            query = queries.reset_index(drop=True).iloc[[content["query"]]]
            proposal = None
            if counterfactuals is not None:
                proposal = counterfactuals.reset_index(drop=True).iloc[content["query"]]
            rules += answer_rules(world, content, query, proposal)
        faults += [f"explanation of query {content['query']}: {fault}" for fault in rules]
    return faults


def _released(release: Any) -> list[Content]:
    """Return the released explanations of an `Explanations`, or of its JSON, as JSON."""
    text = release if isinstance(release, str) else release.to_json()
    contents = json.loads(text)["explanations"]
    return [content for content in contents if content["status"] == "released"]


# --- rules of every explanation ---------------------------------------------------------------------


def people_rules(world: World, content: Content) -> Iterator[str]:
    """At least k people are inside; in a catalogue, also with the outcome and with these values."""
    is_inside = world.is_inside(content["region"])
    n_inside = world.count(is_inside)
    stated = content["certificate"]["k"]
    if n_inside < world.k:
        yield f"the region contains {n_inside} people, fewer than {world.k}"
    if not world.k <= stated <= n_inside:
        yield f"the certificate states k = {stated}, and {n_inside} people are inside"
    if world.guarantee == "lookup":
        return
    outcome = content["outcome"]
    n_desired = world.count(is_inside & _meets(world.labels, outcome))
    if n_desired < world.k:
        yield f"{n_desired} people inside have the desired outcome, fewer than {world.k}"
    inside = world.rows[is_inside]
    # An answer needs its margin at the point that it advises, and an entry for everyone.
    margin = 0.0 if "advised" in content else content["certificate"]["margin"]
    is_sure = world.is_sure(world.with_values(inside, content["released"]), outcome, margin)
    agrees = np.zeros(len(is_inside), dtype=bool)
    agrees[inside.index] = is_sure
    if world.count(agrees) < world.k:
        yield (
            f"the model agrees with the private values for {world.count(agrees)} people inside,"
            f" fewer than {world.k}"
        )


def figure_rules(world: World, content: Content) -> Iterator[str]:
    """The stated NCP and pureness are those of the region, and it is pure enough."""
    certificate = content["certificate"]
    loss = ncp(world, content["region"])
    if not _is_stated(certificate["ncp"], loss, ceil):
        yield f"the certificate states an NCP of {certificate['ncp']}, and it is {loss}"
    rows, are_all = combinations(world, content["region"])
    has_outcome = world.accepts(
        world.with_values(rows, content["released"]), content["outcome"], None
    )
    pureness = float(has_outcome.mean())
    slack = 0.0 if are_all else 0.02
    if world.guarantee == "catalogue" and pureness < world.least_pureness - slack - TOLERANCE:
        yield f"the pureness is {pureness:.3f}, less than {world.least_pureness}"
    is_estimate = not certificate["exact"] or not are_all
    is_near = abs(certificate["pureness"] - pureness) <= 0.1
    if not (is_near if is_estimate else _is_stated(certificate["pureness"], pureness, floor)):
        yield f"the certificate states a pureness of {certificate['pureness']}, and it is {pureness}"


def sensitive_rules(world: World, content: Content) -> Iterator[str]:
    """The sensitive values of the people inside are diverse, and close to those of everyone."""
    is_inside = world.is_inside(content["region"])
    for name in world.sensitive:
        column = world.rows[name]
        n_values = column[is_inside].nunique(dropna=False)
        if world.l is not None and n_values < world.l:
            yield f"{name} has {n_values} values inside, fewer than {world.l}"
        if world.t is not None and world.guarantee == "lookup":
            distance = closeness(column[is_inside], column)
            if distance > world.t + TOLERANCE:
                yield f"{name} is at a distance of {distance:.3f} from everyone, more than {world.t}"


def entry_rules(world: World, content: Content) -> Iterator[str]:
    """Every private value of an entry, and all together, belong to k people or to no one."""
    values = content["released"]
    for name, value in values.items():
        n_people = world.count(world.has_values({name: value}))
        if 0 < n_people < world.k:
            yield f"the value of {name} belongs to {n_people} people"
    if len(values) == len(world.private):
        n_people = world.count(world.has_values(values))
        if 0 < n_people < world.k:
            yield f"the private values together belong to {n_people} people"


# --- rules of answers -------------------------------------------------------------------------------


def answer_rules(
    world: World, content: Content, query: pd.DataFrame, proposal: pd.Series | None
) -> Iterator[str]:
    """An answer asks for nothing that is excluded, and is true for the person who asked."""
    factual = query.iloc[0]
    point = advised_point(content, factual, world.rows, world.rules)
    yield from constraint_rules(world, point, factual)
    if world.guarantee == "lookup":
        if proposal is not None:
            yield from lookup_rules(world, content, proposal)
        return
    yield from point_rules(world, content, factual)
    yield from value_rules(world, content["released"], factual)
    own = np.asarray(world.predict(query[[*world.rows]]))[0]
    asked = _with_dtypes(pd.DataFrame([point]), world.rows)
    if not world.accepts(asked, None, own)[0]:
        yield "the answer is not true: the model refuses the advised point"
    elif not world.is_sure(asked, content["outcome"], content["certificate"]["margin"])[0]:
        yield "the model accepts the advised point, but not with the margin"


def point_rules(world: World, content: Content, factual: pd.Series) -> Iterator[str]:
    """Every quasi-identifier of the point is inside the region, or the query's own."""
    for name, value in content["advised"].items():
        is_own = _is_equal(_read(world.rows[name], [value]).iloc[0], factual[name])
        part = content["region"][name]
        if not is_own and not is_inside(part, _one(world.rows[name], value))[0]:
            yield f"the advised {name} is neither in the region nor the query's own"


def value_rules(world: World, values: Content, factual: pd.Series) -> Iterator[str]:
    """A category is the query's own, or belongs to k people or to no one.

    Numbers and dates are not checked: an answer may move them anywhere between.
    """
    for name, value in values.items():
        n_people = world.count(world.has_values({name: value}))
        if n_people == 0 or n_people >= world.k or _is_equal(value, factual[name]):
            continue
        column = world.rows[name]
        if not _is_line(column):
            yield f"the value of {name} belongs to {n_people} people, and is not the query's own"


def constraint_rules(world: World, point: Mapping[str, Any], factual: pd.Series) -> Iterator[str]:
    """No advised change is excluded, and there are not too many."""
    changed = [name for name, value in point.items() if not _is_equal(value, factual[name])]
    for name in changed:
        if not world.rules.permits(name, point[name], factual[name]):
            yield f"{name} asks for a change that is excluded"
    most = world.rules.max_changes
    if most is not None and len(changed) > most:
        yield f"it asks for {len(changed)} changes, more than {most}"


def lookup_rules(world: World, content: Content, proposal: pd.Series) -> Iterator[str]:
    """The region contains the explainer's counterfactual, whose private values are released."""
    for name, part in content["region"].items():
        if not is_inside(part, _one(world.rows[name], proposal[name]))[0]:
            yield f"the region does not contain the counterfactual's {name}"
    for name, value in content["released"].items():
        if not _is_equal(value, proposal[name]):
            yield f"{name} is not the counterfactual's"


# --- what is counted ----------------------------------------------------------------------------------


def is_inside(part: Content, column: pd.Series) -> Mask:
    """Return which values of a column are inside one part of a region."""
    if part["kind"] == "set":
        values = _read(column, part["values"])
        mask = column.isin(values.dropna()) | (column.isna() & values.isna().any())
        return mask.to_numpy(dtype=bool)
    is_missing = column.isna() & (part["low"] is None or part.get("missing", False))
    if part["low"] is None:
        return is_missing.to_numpy(dtype=bool)
    if "levels" in part:
        mask = column.isin(part["levels"])
    else:
        low, high = _read(column, [part["low"], part["high"]])
        mask = column.between(low, high)
    return (mask | is_missing).to_numpy(dtype=bool)


def ncp(world: World, region: Mapping[str, Any]) -> float:
    """Return the normalised certainty penalty of a region.

    Goethals, Sörensen, Martens (2023), equations 1 to 3: the weighted mean over quasi-identifiers
    of (high - low) / range; for sets of several values |R| / |A|; in a hierarchy the leaves under
    the lowest common node / |A|. A range that contains missing values as well costs 1.
    """
    weights = world.weights or dict.fromkeys(world.quasi_identifiers, 1.0)
    losses = {name: _loss(world, name, region[name]) for name in world.quasi_identifiers}
    total = sum(weights.values())
    return sum(weights[name] / total * loss for name, loss in losses.items())


def _loss(world: World, name: str, part: Content) -> float:
    """Return the penalty of one quasi-identifier, in [0, 1]."""
    column = world.rows[name]
    if part["kind"] == "set":
        return _loss_of_set(part["values"], column, world.hierarchies.get(name))
    if part["low"] is None:
        return 0.0
    if part.get("missing", False):
        return 1.0
    if "levels" in part:
        return (len(part["levels"]) - 1) / (len(world.rules.levels[name]) - 1)
    low, high = _read(column, [part["low"], part["high"]])
    whole = column.max() - column.min()
    return float((high - low) / whole) if high > low else 0.0


def _loss_of_set(
    values: Sequence[Any], column: pd.Series, hierarchy: Mapping[str, Sequence[str]] | None
) -> float:
    if len(values) == 1:
        return 0.0
    n_missing = int(column.isna().any())
    if hierarchy is None:
        return len(values) / (column.nunique() + n_missing)
    if None in values:
        return 1.0
    for level in range(len(next(iter(hierarchy.values())))):
        parents = {hierarchy[value][level] for value in values}
        if len(parents) == 1:
            leaves = [leaf for leaf in hierarchy if hierarchy[leaf][level] in parents]
            return len(leaves) / (len(hierarchy) + n_missing)
    return len(hierarchy) / (len(hierarchy) + n_missing)


def combinations(world: World, region: Mapping[str, Any]) -> tuple[pd.DataFrame, bool]:
    """Return the value combinations of a region as rows of quasi-identifiers.

    These are all combinations of values that people of the table have, or else as many as
    `MOST_COMBINATIONS`, drawn at random; the second value tells which.
    """
    columns = []
    for name in region:
        column = world.rows[name].drop_duplicates()
        columns.append(column[is_inside(region[name], column)])
    n_combinations = prod(len(column) for column in columns)
    if n_combinations <= MOST_COMBINATIONS:
        rows = pd.DataFrame(product(*columns), columns=[*region])
        return rows, True
    random = np.random.default_rng(0)
    drawn = {
        column.name: column.iloc[random.integers(len(column), size=MOST_COMBINATIONS)].to_numpy()
        for column in columns
    }
    return pd.DataFrame(drawn), False


def closeness(inside: pd.Series, everyone: pd.Series) -> float:
    """Return the distance of two distributions of a sensitive attribute.

    Li, Li, Venkatasubramanian (2007): the earth mover's distance; for numbers with a ground distance
    of 1 / (m - 1) between neighbouring values, for categories with 1 between any two.
    """
    shares = pd.DataFrame(
        {
            "inside": inside.value_counts(normalize=True, dropna=False),
            "everyone": everyone.value_counts(normalize=True, dropna=False),
        }
    ).fillna(0.0)
    gap = (shares["inside"] - shares["everyone"]).sort_index()
    if not _is_line(everyone):
        return float(gap.abs().sum() / 2)
    return float(gap.cumsum().abs().sum() / max(len(gap) - 1, 1))


# --- the advised point ----------------------------------------------------------------------------


def advised_points(
    release: Any, queries: pd.DataFrame, train: pd.DataFrame, rules: Rules | None = None
) -> tuple[list[int], pd.DataFrame]:
    """Return the queries that are answered, and the point that each answer advises.

    Parameters
    ----------
    release : Explanations, or its JSON as text
    queries : DataFrame
        The rows that were asked about.
    train : DataFrame
        The features of the training table; the points have its dtypes.
    rules : Rules, optional
        What the answers may ask for.
    """
    contents = _released(release)
    positions = [content["query"] for content in contents]
    points = [
        advised_point(content, queries.iloc[content["query"]], train, rules or Rules())
        for content in contents
    ]
    return positions, _with_dtypes(pd.DataFrame(points, columns=[*train]), train)


def advised_point(
    content: Content, factual: pd.Series, train: pd.DataFrame, rules: Rules
) -> dict[str, Any]:
    """Return the point that an answer advises, by feature.

    If it advises none, that is the point of its region that is nearest to the query. A feature that
    the answer does not name has the query's own value.
    """
    point = {name: factual[name] for name in train}
    for name, part in content["region"].items():
        if "advised" in content:
            point[name] = _read(train[name], [content["advised"][name]]).iloc[0]
        else:
            point[name] = _nearest(part, name, factual[name], train[name], rules)
    for name, value in content["released"].items():
        point[name] = _read(train[name], [value]).iloc[0]
    return point


def _nearest(part: Content, name: str, factual: Any, column: pd.Series, rules: Rules) -> Any:
    """Return the permitted value inside a part that is nearest to the query's own.

    Of a set that is the first permitted value, in the answer's order. If the part has no permitted
    value, an excluded one is returned.
    """
    if is_inside(part, _one(column, factual))[0]:
        return factual
    if part["kind"] == "interval" and part["low"] is None:
        return None
    if part["kind"] == "set" or "levels" in part:
        values = part["values"] if part["kind"] == "set" else part["levels"]
        permitted = [value for value in values if rules.permits(name, value, factual)]
        choices = permitted or values
        if "levels" in part and factual in rules.levels.get(name, ()):
            rank = rules.levels[name].index
            return min(choices, key=lambda level: abs(rank(level) - rank(factual)))
        return _read(column, choices).iloc[0]
    part_low, part_high = _read(column, [part["low"], part["high"]])
    least, most = rules.limits(name, factual)
    low = part_low if least == -inf else max(part_low, least)
    high = part_high if most == inf else min(part_high, most)
    if low > high:  # nothing in the part is permitted
        low, high = part_low, part_high
    return high if factual > high else low


# --- values -----------------------------------------------------------------------------------------


def _is_line(column: pd.Series) -> bool:
    """Return whether a column has numbers or dates."""
    is_flag = pd.api.types.is_bool_dtype(column)
    is_date = pd.api.types.is_datetime64_any_dtype(column)
    return is_date or (pd.api.types.is_numeric_dtype(column) and not is_flag)


def _read(column: pd.Series, values: Sequence[Any]) -> pd.Series:
    """Return values of JSON in a type that compares with a column's."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return pd.to_datetime(pd.Series(values)).astype(column.dtype)
    if _is_line(column):
        return pd.Series(values, dtype=float)
    return pd.Series(values, dtype=object)


def _one(column: pd.Series, value: Any) -> pd.Series:
    """Return a column with one value, of the column's type if that is possible."""
    one = pd.Series([value], dtype=object)
    return one if pd.isna(value) else one.astype(column.dtype)


def _with_dtypes(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns and dtypes of a table; with gaps, whole numbers are objects."""
    columns = {}
    for name in table:
        dtype = table[name].dtype
        has_gap = rows[name].isna().any()
        is_whole = pd.api.types.is_integer_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)
        columns[name] = rows[name].astype(object if is_whole and has_gap else dtype)
    return pd.DataFrame(columns)


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two values are the same; two missing ones are, and a date equals its text."""
    if pd.isna(value) or pd.isna(other):
        return bool(pd.isna(value) and pd.isna(other))
    if isinstance(other, pd.Timestamp):
        return bool(pd.Timestamp(value) == other)
    return bool(value == other)


def _is_stated(stated: float, counted: float, rounding: Callable[[float], int]) -> bool:
    """Return whether a stated figure is the counted one with two decimals, rounded up or down."""
    tolerance = TOLERANCE if rounding is floor else -TOLERANCE
    return stated == rounding(100 * counted + tolerance) / 100


def _meets(labels: NDArray[Any], outcome: Content) -> Mask:
    """Return which labels are the outcome that an explanation states."""
    if "label" in outcome:
        return np.asarray(labels == outcome["label"])
    if "not" in outcome:
        return np.asarray(labels != outcome["not"])
    if "any" in outcome:
        return np.isin(labels, outcome["any"])
    low = -inf if outcome["low"] is None else outcome["low"]
    high = inf if outcome["high"] is None else outcome["high"]
    return (labels >= low) & (labels <= high)
