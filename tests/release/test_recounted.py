"""Whatever the table, the policy and the method: every figure of a certificate equals a recount in
plain pandas.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin import (
    Attribute,
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
)
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.errors import PolicyError

pytestmark = pytest.mark.filterwarnings("ignore::cfk_plugin.errors.LookupGuaranteeWarning")

LEVELS = ["low", "mid", "high"]
CITIES = list("ABCDEFG")
TREE = {city: ["north" if city < "D" else "south"] for city in CITIES}
NODES = [{city} for city in CITIES] + [set("ABC"), set("DEFG"), set(CITIES)]
KINDS = [
    "whole", "real", "nominal", "many", "ordinal", "hierarchical", "flag", "date", "zoned", "categorical", "constant",
]  # fmt: skip
WHOLE = ("whole", "flag", "constant")  # kinds without missing values
GUARANTEES = ["lookup", "catalogue"]


class Case(NamedTuple):
    train: pd.DataFrame
    schema: Schema
    raw: pd.DataFrame  # four counterfactuals, of which some are off the population
    factuals: pd.DataFrame
    policy: PrivacyPolicy
    method: str
    desired: Any


def column(kind: str, n: int, rng: np.random.Generator) -> Any:
    days = pd.to_timedelta(rng.integers(0, 40, n), unit="D")
    return {
        "whole": rng.integers(0, 25, n),
        "real": rng.normal(50, 10, n).round(1),
        "nominal": rng.choice(CITIES, n).astype(object),
        "many": np.array([f"place {i}" for i in rng.integers(0, 150, n)], dtype=object),
        "ordinal": rng.choice(LEVELS, n).astype(object),
        "hierarchical": rng.choice(CITIES, n).astype(object),
        "flag": rng.random(n) < 0.5,
        "date": pd.Timestamp("2020-02-28") + days,
        "zoned": pd.Timestamp("2020-02-28", tz="Europe/Brussels") + days,
        "categorical": pd.Categorical(rng.choice(CITIES[:4], n), categories=CITIES),
        "constant": np.full(n, 3.5),
    }[kind]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    n, rng = draw(st.integers(8, 40)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = {f"q{j}_{kind}": kind for j, kind in enumerate(kinds)}
    train = pd.DataFrame({name: column(kind, n, rng) for name, kind in names.items()})
    train = train.assign(
        pay=rng.integers(0, draw(st.sampled_from([4, 12, 40])), n),
        debt=rng.normal(50, 20, n).round(1),
        job=rng.choice(list("abc"), n),
        person=rng.integers(0, n, n),
        name=[f"somebody {i}" for i in range(n)],
    )
    if draw(st.booleans()):
        for name, kind in {**names, "debt": "real"}.items():
            if kind not in WHOLE:
                train.loc[np.append(False, rng.random(n - 1) < 0.15), name] = None
    subject = draw(st.sampled_from([None, "person"]))
    people = train["person"].nunique() if subject else n
    train = train if subject else train.drop(columns="person")
    schema = Schema.from_frame(
        train,
        quasi_identifiers=list(names),
        sensitive=["job"],
        identifiers=["name"],
        subject=subject,
        ordinal={name: LEVELS for name in names if "ordinal" in name},
        columns={
            name: Attribute(
                hierarchy=TREE if "hierarchical" in name else None,
                weight=draw(st.sampled_from([0.0, 1.0, 2.5])) if i > 0 else None,
            )
            for i, name in enumerate(names)
        },
    )
    raw = train.iloc[rng.integers(0, n, 4)].reset_index(drop=True)
    for name, kind in names.items():  # the last two are strangers: values mixed or shifted
        mixed = train[name].iloc[rng.integers(0, n, 2)].tolist()
        raw[name] = pd.Series([*raw[name].tolist()[:2], *mixed], dtype=object).astype(
            train[name].dtype
        )
        if kind in ("real", "whole"):
            raw.loc[3, name] = raw.loc[3, name] + int(rng.integers(-30, 30))
    raw.loc[2, "pay"] = int(rng.integers(-10, 60))
    guarantee = draw(st.sampled_from(GUARANTEES))
    policy = PrivacyPolicy(
        guarantee=guarantee,  # type: ignore[arg-type]
        k=draw(st.integers(2, max(2, people // 2))),
        objective=draw(st.sampled_from(["pureness", "ncp"])),
        l=draw(st.sampled_from([None, None, 2])),
        t=draw(st.sampled_from([None, None, 0.4])),
        max_ncp=draw(st.sampled_from([None, None, 0.5])),
        min_pureness=draw(st.sampled_from([None, None, 0.5])),
    )
    method = (
        draw(st.sampled_from(["exact", "grasp", "mondrian"])) if guarantee == "lookup" else "auto"
    )
    desired = draw(st.sampled_from([1, "opposite", "other than the factual", one_of_two]))
    return Case(train, schema, raw, train.iloc[rng.integers(0, n, 4)], policy, method, desired)


def model(rows: pd.DataFrame) -> np.ndarray:
    """Return one of three outcomes, by every feature; a dtype or a value that it was not made for
    is noticed.
    """
    score = (
        rows["pay"].to_numpy(dtype=float) + rows["debt"].astype(float).fillna(3).round().to_numpy()
    )
    for name in rows.columns.drop(["pay", "debt"]):
        at, values = pd.factorize(rows[name], use_na_sentinel=False)
        score += np.array(
            [0 if pd.isna(value) else sum(map(ord, str(value))) % 5 for value in values]
        )[at]
    return (score % 7 % 3).astype(int)


def one_of_two(labels: Any) -> np.ndarray:
    return np.isin(labels, [0, 1])


def inside(part: Any, values: pd.Series) -> pd.Series:
    """Say of every value whether it is inside a part; pandas alone, nothing of the package."""
    if isinstance(part, Interval):
        missing, known = part.missing, pd.Series(False, index=values.index)
        if part.levels is not None:
            known = values.astype(object).isin(part.levels)
        elif (
            part.low is not None and values.notna().any()
        ):  # dates that are all missing have no zone to compare in
            known = values.between(part.low, part.high)
    else:
        missing, known = (
            None in part,
            values.astype(object).isin([value for value in part if value is not None]),
        )
    return known.astype(bool) & values.notna() | values.isna() & missing


def distinct(values: Any) -> list[Any]:
    return list(dict.fromkeys(None if pd.isna(value) else value for value in values))


def people(rows: pd.DataFrame) -> int:
    return rows["person"].nunique() if "person" in rows else len(rows)


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_every_certificate_is_a_plain_recount(case: Case) -> None:
    population = Population.from_frame(case.train, case.schema)
    policy = case.policy
    if population.n_people < policy.k:
        return
    goal = case.desired if case.desired in (1, one_of_two) else "opposite"
    labels = model(population.frame)
    sides = (
        [labels == label for label in set(labels)]
        if goal == "opposite"
        else [DesiredOutcome.of(goal).is_met(labels)]
    )
    anonymizer = KAnonymizer(policy=policy, method=case.method)
    may_be_groups = [side for side in sides if may_be_group(side, population, policy)]
    if policy.guarantee == "catalogue" and not may_be_groups:
        with pytest.raises(PolicyError, match="there is no catalogue"):
            anonymizer.fit(population, model=model, desired=goal)
        return
    try:
        anonymizer.fit(population, model=model, desired=goal)
    except PolicyError as error:
        # Some people with an outcome may be close to everybody where all of them are not.
        assert policy.guarantee == "catalogue"
        is_unshared = "is shared by k" in str(error)
        assert is_unshared or not any(is_close(side, population, policy) for side in may_be_groups)
        return
    factuals = case.factuals if case.desired == "other than the factual" else None
    result = anonymizer.transform(case.raw, factuals)
    own = model(population.conform(case.raw))
    before = model(population.conform(case.factuals))
    everybody = [] if policy.guarantee == "lookup" else anonymizer.regions_of(case.train)
    for i, entry in enumerate(result):
        assert entry.query == i
        judge = {
            1: lambda labels: labels == 1,
            one_of_two: one_of_two,
            "opposite": lambda labels, i=i: labels == own[i],
            "other than the factual": lambda labels, i=i: labels != before[i],
        }[case.desired]
        if isinstance(entry, Withheld):
            assert entry.reason in (
                reasons(case) if judge(own)[i] else {"not_desired", "missing_value"}
            )
        else:
            assert judge(own)[i]
            Recount(case, population, everybody, entry, judge).check()
    assert "somebody" not in result.to_json()
    spelled_otherwise(case, anonymizer, result, factuals)


def may_be_group(side: np.ndarray, population: Population, policy: PrivacyPolicy) -> bool:
    """Say whether people are k, and have l different jobs."""
    jobs = population.frame["job"][side]
    return population.people(np.flatnonzero(side)) >= policy.k and jobs.nunique() >= (policy.l or 1)


def is_close(side: np.ndarray, population: Population, policy: PrivacyPolicy) -> bool:
    """Say whether jobs are shared among these people as among everybody, up to t."""
    jobs = population.frame["job"]
    everywhere = jobs.value_counts(normalize=True)
    here = jobs[side].value_counts(normalize=True).reindex(everywhere.index, fill_value=0)
    return policy.t is None or (here - everywhere).abs().sum() / 2 <= policy.t


def reasons(case: Case) -> set[str]:
    """Return why a counterfactual with the desired outcome may be withheld under the policy."""
    policy = case.policy
    asked = {
        "infeasible": case.method != "exact" or None not in (policy.max_ncp, policy.min_pureness),
        "pureness_below_floor": policy.guarantee != "lookup" or policy.min_pureness is not None,
        "ncp_above_ceiling": policy.max_ncp is not None,
        "l_diversity": policy.l is not None,
        "t_closeness": policy.t is not None,
        "missing_value": True,
    }
    return {reason for reason, may_be in asked.items() if may_be}


def spelled_otherwise(
    case: Case, anonymizer: KAnonymizer, result: Explanations, factuals: Any
) -> None:
    """Check that order and index, further columns, dtypes, and what else is asked make no
    difference.
    """
    raw = (
        case.raw.astype(object)[case.raw.columns[::-1]]
        .assign(label=1)
        .set_index(pd.Index([9, 9, 4, 1]))
    )
    assert anonymizer.transform(raw, factuals) == result
    if case.method == "grasp":  # which draws for all of a table together
        return
    alone = anonymizer.transform(case.raw.tail(1), None if factuals is None else factuals.tail(1))[
        0
    ]
    assert alone.to_dict() == {**result[3].to_dict(), "query": 0}


class Recount:
    """What can be counted of one released entry with the training table alone."""

    def __init__(
        self, case: Case, population: Population, everybody: list[Any], entry: Any, judge: Any
    ) -> None:
        self.case, self.entry, self.judge = case, entry, judge
        self.train, self.schema, self.policy = case.train, case.schema, case.policy
        self.features, self.quasi = list(case.schema.features), list(case.schema.quasi_identifiers)
        self.conform, self.everybody, self.own = (
            population.conform,
            everybody,
            case.raw.loc[entry.query],
        )
        self.certificate = entry.certificate
        self.recount = entry.recount
        within = pd.DataFrame(
            {name: inside(entry.region[name], self.train[name]) for name in self.quasi}
        )
        self.inside = within.all(axis=1)
        # Of eligible people with several outcomes each has groups of its own, of which two may
        # share a region.
        self.counts_many = self.policy.counts_eligible and case.desired not in (1, one_of_two)
        self.said = self.judge(model(self.conform(self.train)))

    def check(self) -> None:
        certificate = self.certificate
        recount = self.recount
        policy = self.policy
        lookup = self.policy.guarantee == "lookup"
        rows = self.train[self.inside]
        assert certificate.k == people(rows) >= policy.k
        assert certificate.prosecutor_risk == 1 / people(rows)
        assert recount.k_desired == people(rows[self.said[self.inside]])
        assert recount.majority == (2 * self.said[self.inside].sum() >= len(rows))
        crowd = self.inside if lookup else self.check_crowd()
        fits = self.check_private_values()
        assert (recount.private_matches, recount.k_private) == (
            fits.sum(),
            fits[self.inside].sum(),
        )
        mine = rows[self.features].assign(**dict(self.entry.released))
        consistent = self.judge(model(self.conform(mine)))
        assert recount.k_consistent == people(rows[consistent])
        if policy.guarantee == "catalogue":
            assert people(rows[consistent & crowd[self.inside].to_numpy()]) >= policy.k
        self.check_losses()
        self.check_pureness()
        jobs, everywhere = (
            part["job"].value_counts(normalize=True) for part in (self.train[crowd], self.train)
        )
        assert recount.l >= (policy.l or 1)
        assert self.counts_many or recount.l == len(jobs)
        apart = jobs.reindex(everywhere.index, fill_value=0) - everywhere
        assert self.counts_many or recount.t == pytest.approx(apart.abs().sum() / 2)
        assert policy.t is None or recount.t <= policy.t
        assert not certificate.optimal or not certificate.gap
        if lookup:
            held = [
                inside(self.entry.region[name], pd.Series([self.own[name]])).all()
                for name in self.quasi
            ]
            assert all(held)

    def check_crowd(self) -> pd.Series:
        """At least k people who count are mapped to the region, as many as the certificate says;
        return who.
        """
        mapped = np.array([region == self.entry.region for region in self.everybody])
        mapped &= self.said if self.policy.counts_eligible else True
        assert not (mapped & ~self.inside).any()
        if not self.counts_many:
            assert people(self.train[mapped]) == self.recount.k_effective
        assert min(people(self.train[mapped]), self.recount.k_effective) >= self.policy.k
        return pd.Series(mapped, index=self.train.index)

    def check_private_values(self) -> pd.Series:
        """Return who fits the released values; a lookup releases the counterfactual's own."""
        assert sorted(self.entry.released) == sorted(self.schema.private)
        fits = pd.Series(True, index=self.train.index)
        for name, value in self.entry.released.items():
            values = self.train[name]
            fits &= values.isna() if pd.isna(value) else values == value
            if self.policy.guarantee == "lookup":
                assert distinct([self.own[name], value]) == distinct([value])
        return fits

    def check_losses(self) -> None:
        certificate = self.certificate
        recount = self.recount
        weights = [self.schema[name].weight for name in self.quasi]
        losses = [self.loss(name, self.entry.region[name]) for name in self.quasi]
        assert recount.ncp_parts == pytest.approx(losses)
        assert certificate.ncp == pytest.approx(np.average(losses, weights=weights))
        assert self.policy.max_ncp is None or certificate.ncp <= self.policy.max_ncp

    def loss(self, name: str, part: Any) -> float:
        known = self.train[name].dropna()
        if isinstance(part, Interval):
            if part.low is None or part.missing:
                return float(part.low is not None)
            if part.levels is not None:
                return (len(part.levels) - 1) / (len(LEVELS) - 1)
            return (
                min((part.high - part.low) / (known.max() - known.min()), 1.0)
                if known.nunique() > 1
                else 0.0
            )
        if "hierarchical" in name:
            assert None in part or part in NODES
            if None in part:
                return float(len(part) > 1)
            return (
                len(part) / (len(CITIES) + self.train[name].isna().any()) if len(part) > 1 else 0.0
            )
        return (
            len(part) / (known.nunique() + self.train[name].isna().any()) if len(part) > 1 else 0.0
        )

    def check_pureness(self) -> None:
        certificate, axes = self.certificate, {}
        for name in self.quasi:
            part = self.entry.region[name]
            if isinstance(part, frozenset):
                axes[name] = [*part]
            elif part.levels is not None:  # declared levels, also such as nobody has
                axes[name] = [*part.levels, *([None] if part.missing else [])]
            else:
                axes[name] = distinct(self.train.loc[inside(part, self.train[name]), name])
            mine = distinct([self.own[name]])
            if self.policy.guarantee == "lookup" and mine[0] not in distinct(self.train[name]):
                axes[name] += mine  # a number that no row has
        axes |= {name: [value] for name, value in self.entry.released.items()}
        assert certificate.exact == (np.prod([len(axis) for axis in axes.values()]) <= 10_000)
        low, share, high = certificate.pureness_low, certificate.pureness, certificate.pureness_high
        if certificate.exact:
            grid = pd.DataFrame(
                list(itertools.product(*axes.values())), columns=list(axes), dtype=object
            )
            assert (
                low == high == share == pytest.approx(self.judge(model(self.conform(grid))).mean())
            )
        assert 0 <= low <= share <= high <= 1
        assert low >= self.policy.least_pureness
        assert share > 0 or self.policy.guarantee == "lookup"
