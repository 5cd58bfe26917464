"""Protectors, plugins and adapters that lie or crash: nothing but verified regions leaves, whatever they do."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema, hookimpl, protect
from cfk_plugin.errors import AdapterError, InputError, ModelError, PluginError
from cfk_plugin.hookspecs import CounterfactualBatch, Finding, NoneFoundError, Proposal, ReleaseRecord, Task
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import GeneralizedCounterfactual, Suppressed

K = 5
LEVELS = ["low", "mid", "high"]
CITIES = ["Antwerp", "Bruges", "Ghent", "Namur"]


def table(n: int = 90) -> pd.DataFrame:
    """Ages are unique and unusual, so that a raw one is found in any output."""
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "age": 71_003 + 17 * rng.permutation(n),
            "city": rng.choice(CITIES, n),
            "education": rng.choice(LEVELS, n),
            "pay": rng.integers(20, 90, n),
        }
    )


TRAIN = table()
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "city", "education"], ordinal={"education": LEVELS})
POPULATION = Population.from_frame(TRAIN, SCHEMA)
POLICY = PrivacyPolicy(guarantee="nominal", k=K)
RAW = TRAIN[TRAIN["pay"] > 40].head(3).reset_index(drop=True)
EVERYTHING = {
    "age": Interval(int(TRAIN["age"].min()), int(TRAIN["age"].max())),
    "city": frozenset(CITIES),
    "education": Interval("low", "high", levels=tuple(LEVELS)),
}


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > 40).to_numpy().astype(int)


def whole(**changes: Any) -> Region:
    """Return the region of everybody, with some parts replaced behind the back of its checks."""
    region = Region(EVERYTHING)
    if changes:
        object.__setattr__(region, "parts", {**EVERYTHING, **changes})
    return region


def raw_row(i: int) -> dict[str, Any]:
    return RAW.iloc[i].to_dict()


def raw_region(i: int) -> Region:
    row = raw_row(i)
    level = row["education"]
    return Region(
        {
            "age": Interval(row["age"], row["age"]),
            "city": frozenset({row["city"]}),
            "education": Interval(level, level, levels=(level,)),
        }
    )


class Liar:
    """A protector that answers what it is told to."""

    name = "liar"

    def __init__(self, answer: Callable[[Task], Any]) -> None:
        self._answer = answer

    def protect(self, task: Task) -> Any:
        return self._answer(task)


class LyingHook:
    """The same as a plugin."""

    def __init__(self, answer: Callable[[Task], Any]) -> None:
        self._answer = answer

    @hookimpl
    def cfk_protect(self, task: Task) -> Any:
        return self._answer(task)


# A protector can be chosen for a nominal guarantee alone; a hook is asked first whatever the guarantee.
WAYS = ["protector", "plugin", "plugin, reciprocal", "plugin, catalogue"]


def run(answer: Callable[[Task], Any], way: str, population: Population = POPULATION, **policy: Any) -> Explanations:
    settings: dict[str, Any] = {"method": Liar(answer)} if way == "protector" else {"plugins": [LyingHook(answer)]}
    guarantee: Any = way.partition(", ")[2] or "nominal"
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee=guarantee, k=K, **policy), **settings)
    return anonymizer.fit(population, model=model, desired=1).transform(RAW)


def shown(explanations: Explanations) -> str:
    return "".join(
        [
            repr(explanations),
            *map(repr, explanations),
            explanations.to_json(),
            explanations.to_frame().to_csv(),
            explanations.audit_frame().to_csv(),
            str(explanations.summary()),
            str(explanations.provenance),
        ]
    )


def assert_nothing_leaves(explanations: Explanations, reasons: set[str]) -> None:
    assert len(explanations) == len(RAW)
    assert all(isinstance(entry, Suppressed) for entry in explanations)
    assert {entry.reason for entry in explanations.suppressed} <= reasons
    assert not any(str(age) in shown(explanations) for age in RAW["age"])
    assert explanations.summary()["released_native"] == 0


# --- regions that lie ------------------------------------------------------------------------------------------


class WideWhenVerified(Region):
    """Shows everything to who looks it up, and the raw row to who reads the parts."""

    def __getitem__(self, name: str) -> Any:
        return EVERYTHING[name]

    def contains(self, row: Any) -> bool:
        return True


class AgreeableInterval(Interval):
    def __contains__(self, value: object) -> bool:
        return True

    def __str__(self) -> str:
        return str(raw_row(0))


class ShiftingInterval(Interval):
    """Wide at the first looks, narrow afterwards."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("low", "high"):
            ShiftingInterval.looks += 1
            if ShiftingInterval.looks > 12:
                return raw_row(0)["age"]
        return super().__getattribute__(name)


class AgreeableSet(frozenset[Any]):
    def __contains__(self, value: object) -> bool:
        return True


class TalkingValue:
    """Is a city to whom compares it, and a raw row to whom prints it the second time."""

    def __init__(self) -> None:
        self.asked = 0

    def __str__(self) -> str:
        self.asked += 1
        return "Antwerp" if self.asked == 1 else str(raw_row(0))


class TalkingDict(dict[str, Any]):
    """Parts that are other ones each time."""

    def __getitem__(self, name: str) -> Any:
        return raw_region(0).parts[name]


class TalkingProposal(Proposal):
    pass


def without(name: str) -> Region:
    return Region({q: part for q, part in EVERYTHING.items() if q != name})


def elsewhere(i: int) -> Region:
    """Enough people, but the counterfactual is none of them."""
    age = raw_row(i)["age"]
    above = Interval(age + 1, 10**6) if (TRAIN["age"] > age).sum() > K else Interval(0, age - 1)
    return Region({**EVERYTHING, "age": above})


LYING_REGIONS: dict[str, Callable[[int], Any]] = {
    "the raw row": raw_region,
    "a raw row as a dict": raw_row,
    "without the counterfactual": elsewhere,
    "a quasi-identifier missing": lambda i: without("age"),
    "a private attribute added": lambda i: Region({**EVERYTHING, "pay": Interval(0, 99)}),
    "a private attribute in the place of another": lambda i: Region({**without("age").parts, "pay": Interval(0, 99)}),
    "a region subclass": lambda i: WideWhenVerified(raw_region(i).parts),
    "parts that change": lambda i: _with_parts(TalkingDict(EVERYTHING)),
    "no parts": lambda i: _with_parts({}),
    "an interval subclass": lambda i: whole(age=AgreeableInterval(raw_row(i)["age"], raw_row(i)["age"])),
    "an interval that shrinks": lambda i: whole(age=ShiftingInterval(0, 10**6)),
    "a set subclass": lambda i: whole(city=AgreeableSet({raw_row(i)["city"]})),
    "an interval for a set": lambda i: whole(city=Interval("A", "Z")),
    "a set for an interval": lambda i: whole(age=frozenset(TRAIN["age"])),
    "a text for an interval": lambda i: whole(age=str(raw_row(i))),
    "texts for ends": lambda i: whole(age=Interval("0", "999999")),
    "an end that is not there": lambda i: whole(age=Interval(0, None)),
    "booleans for ends": lambda i: whole(age=Interval(False, True)),
    "endless": lambda i: whole(age=Interval(-np.inf, np.inf)),
    "not a number": lambda i: whole(age=Interval(np.nan, np.nan)),
    "ends exchanged": lambda i: whole(age=Interval(10**6, 0)),
    "levels for a number": lambda i: whole(age=Interval(0, 10**6, levels=tuple(LEVELS))),
    "no levels": lambda i: whole(education=Interval("low", "high")),
    "unknown levels": lambda i: whole(education=Interval("low", "high", levels=(*LEVELS, str(raw_row(i))))),
    "levels with a gap": lambda i: whole(education=Interval("low", "high", levels=("low", "high"))),
    "levels as a list": lambda i: whole(education=Interval("low", "high", levels=LEVELS)),  # type: ignore[arg-type]
    "an unknown category": lambda i: whole(city=frozenset({*CITIES, str(raw_row(i))})),
    "an empty set": lambda i: whole(city=frozenset()),
    "not even a region": lambda i: object(),
}


def _with_parts(parts: Any) -> Region:
    region = Region(EVERYTHING)
    object.__setattr__(region, "parts", parts)
    return region


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lie", LYING_REGIONS)
def test_region_that_lies_is_suppressed(lie: str, way: str) -> None:
    ShiftingInterval.looks = 0
    made = LYING_REGIONS[lie]
    result = run(lambda task: [Proposal(made(i), optimal=True, gap=0.0) for i in range(len(task))], way)
    assert_nothing_leaves(result, {"verification_failed"})


def test_one_lie_costs_the_others_nothing() -> None:
    result = run(lambda task: [Proposal(whole()), Proposal(raw_region(1)), Proposal(whole())], "protector")
    assert [entry.status for entry in result] == ["released", "suppressed", "released"]
    assert str(RAW["age"][1]) not in shown(result)


@pytest.mark.parametrize("way", ["protector", "plugin"])
def test_texts_in_a_region_are_the_populations_own(way: str) -> None:
    note = str(raw_row(0))

    def talking() -> Region:
        cities = frozenset({TalkingValue(), "Bruges", "Ghent", "Namur"})
        return whole(city=cities, education=Interval(note, note, levels=tuple(LEVELS)))

    result = run(lambda task: [Proposal(talking()) for _ in range(len(task))], way)
    assert len(result.released) == len(RAW)
    assert not any(f"'age': {age}" in shown(result) for age in RAW["age"])
    assert result.released[0].region == Region(EVERYTHING)
    assert {type(city) for city in result.released[0].region["city"]} == {str}  # type: ignore[union-attr]


def test_region_cannot_be_changed_after_it_was_verified() -> None:
    region = Region(EVERYTHING)
    kept = region["age"]
    result = run(lambda task: [Proposal(region)] * len(task), "protector")
    before = result.to_json()
    object.__setattr__(kept, "low", raw_row(0)["age"])
    object.__setattr__(region, "parts", {"age": "raw"})
    assert result.to_json() == before
    object.__setattr__(kept, "low", int(TRAIN["age"].min()))


# --- answers that are none -------------------------------------------------------------------------------------

WRONG_ANSWERS: dict[str, Callable[[Task], Any]] = {
    "too few": lambda task: [Proposal(whole())] * (len(task) - 1),
    "too many": lambda task: [Proposal(whole())] * (len(task) + 1),
    "none at all": lambda task: [],
    "regions": lambda task: [whole()] * len(task),
    "lookalikes": lambda task: [type("Proposal", (), {"region": whole(), "optimal": True, "gap": 0.0})()] * len(task),
    "a proposal subclass": lambda task: [TalkingProposal(whole())] * len(task),
    "a list of None": lambda task: [None] * len(task),
    "raw rows": lambda task: [raw_row(i) for i in range(len(task))],
    "a dict of raw rows": lambda task: {i: raw_row(i) for i in range(len(task))},
    "the raw table": lambda task: RAW,
    "a number": lambda task: 4711,
    "a text": lambda task: "abc",
    "a generator": lambda task: (Proposal(raw_region(i)) for i in range(len(task) - 1)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", WRONG_ANSWERS)
def test_wrong_answer_is_suppressed(answer: str, way: str) -> None:
    assert_nothing_leaves(run(WRONG_ANSWERS[answer], way), {"protector_failed"})


def test_none_is_no_answer_of_a_protector_and_a_plugin_that_declines() -> None:
    assert_nothing_leaves(run(lambda task: None, "protector"), {"protector_failed"})
    for way, method in (("", "exact"), (", reciprocal", "reciprocal"), (", catalogue", "catalogue")):
        declined = run(lambda task: None, f"plugin{way}")
        assert len(declined.released) == len(RAW)
        assert {entry.certificate.method for entry in declined.released} == {method}


@pytest.mark.parametrize("way", WAYS)
def test_no_region_is_infeasible(way: str) -> None:
    assert_nothing_leaves(run(lambda task: [Proposal(None, optimal=True)] * len(task), way), {"infeasible"})


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError(str(raw_row(0)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [
        ValueError,
        KeyError,
        RecursionError,
        MemoryError,
        StopIteration,
        OSError,
        InputError,
        ModelError,
        UnprintableError,
    ],
)
def test_exception_is_suppressed_and_not_quoted(
    error: type[Exception], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(task: Task) -> Any:
        try:
            raise ValueError(str(raw_row(1)))
        except ValueError as cause:
            raise error(f"cannot protect {raw_row(0)}") from cause

    caplog.set_level(logging.DEBUG)
    result = run(crash, way)
    assert_nothing_leaves(result, {"protector_failed", "model_failed"})
    assert not any(str(age) in caplog.text for age in RAW["age"])


# --- claims ----------------------------------------------------------------------------------------------------


def test_figures_are_recounted_and_not_believed() -> None:
    result = run(lambda task: [Proposal(whole(), optimal=True, gap=0.0)] * len(task), "protector")
    for entry in result.released:
        certificate = entry.certificate
        assert certificate.k == len(TRAIN)
        assert certificate.ncp == pytest.approx(1.0)
        assert certificate.pureness == 1.0  # pay alone decides, and it stays
        assert certificate.method == "liar"  # a claim of optimality is that of a protector, named beside it


@pytest.mark.parametrize("gap", [float("nan"), float("inf"), -1.0, "raw", [1], object()])
def test_gap_that_is_none_is_not_repeated(gap: Any) -> None:
    result = run(lambda task: [Proposal(whole(), optimal=gap, gap=gap)] * len(task), "protector")
    assert all(e.certificate.gap is None and not e.certificate.optimal for e in result.released)
    result.to_json()


def test_hooks_regions_are_not_signed_by_the_protector() -> None:
    result = run(lambda task: [Proposal(whole(), optimal=True, gap=0.0)] * len(task), "plugin")
    assert {entry.certificate.method for entry in result.released} == {"plugin"}


def test_policy_holds_for_regions_of_plugins() -> None:
    result = run(lambda task: [Proposal(whole())] * len(task), "plugin", max_ncp=0.5)
    assert_nothing_leaves(result, {"ncp_above_ceiling"})


def test_built_in_names_are_taken() -> None:
    liar = Liar(lambda task: [])
    liar.name = "exact"
    with pytest.raises(InputError, match="'exact'"):
        KAnonymizer(policy=POLICY, method=liar).fit(POPULATION, model=model, desired=1)
    for name in (None, 7, ["exact"]):
        liar.name = name  # type: ignore[assignment]
        with pytest.raises(InputError, match="name or a protector"):
            KAnonymizer(policy=POLICY, method=liar).fit(POPULATION, model=model, desired=1)


def test_name_cannot_carry_a_row_out() -> None:
    class Renamed(Liar):
        def protect(self, task: Task) -> Any:
            self.name = str(raw_row(0))
            return [Proposal(whole())] * len(task)

    anonymizer = KAnonymizer(policy=POLICY, method=Renamed(lambda task: None))
    result = anonymizer.fit(POPULATION, model=model, desired=1).transform(RAW)
    assert len(result.released) == len(RAW)
    assert not any(f"'age': {age}" in shown(result) for age in RAW["age"])


def test_plugins_protector_cannot_take_a_built_in_name() -> None:
    class Usurper:
        @hookimpl
        def cfk_register_protectors(self) -> Any:
            return {
                name: lambda: Liar(lambda task: [Proposal(raw_region(0))] * len(task)) for name in ("exact", "mine")
            }

    usurper = Usurper()
    fitted = KAnonymizer(policy=POLICY, plugins=[usurper]).fit(POPULATION, model=model, desired=1)
    assert len(fitted.transform(RAW).released) == len(RAW)
    fitted = KAnonymizer(policy=POLICY, method="mine", plugins=[usurper])
    result = fitted.fit(POPULATION, model=model, desired=1).transform(RAW)
    assert_nothing_leaves(result, {"verification_failed"})


# --- what they are given ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_changes_to_the_task_reach_nobody(way: str) -> None:
    def vandal(task: Task) -> list[Proposal]:
        task.codes[:] = 0
        task.numbers[:] = 0.0
        if task.groups is not None:
            task.groups[:] = 0
        object.__setattr__(task.policy, "k", 1)
        return [Proposal(raw_region(0))] + [Proposal(elsewhere(i)) for i in range(1, len(task))]

    assert_nothing_leaves(run(vandal, way), {"verification_failed"})


def test_population_cannot_be_changed() -> None:
    population = Population.from_frame(TRAIN, SCHEMA)
    before = (population.frame, population.cells.copy(), population.cell_people.copy(), population.fingerprint)
    attempts: list[Callable[[Population], Any]] = [
        lambda p: p.cells.__setitem__((0, 0), 1),
        lambda p: p.cell_people.__setitem__(slice(None), 100),
        lambda p: p.domains["age"].values.__setitem__(0, -1.0),
        lambda p: p.domains["city"].originals.__setitem__(0, "x"),
        lambda p: p.domains.__setitem__("age", None),  # type: ignore[attr-defined]
        lambda p: setattr(p, "cells", None),
        lambda p: setattr(p, "frame", None),
        lambda p: setattr(p, "schema", None),
    ]
    for attempt in attempts:
        with pytest.raises((ValueError, TypeError, AttributeError)):
            attempt(population)
    with contextlib.suppress(ValueError):  # pandas 3 refuses, pandas 2 writes into the copy
        population.frame.loc[:, "age"].to_numpy()[0] = 1
    taken = population.frame
    taken.loc[:, "age"] = 1
    taken["city"] = "nowhere"
    pd.testing.assert_frame_equal(population.frame, before[0])
    assert np.array_equal(population.cells, before[1])
    assert np.array_equal(population.cell_people, before[2])
    assert population.fingerprint == before[3]
    pd.testing.assert_frame_equal(population.frame, table())


@pytest.mark.usefixtures("each_guarantee")
def test_vandal_detector_reaches_nobody() -> None:
    class Vandal:
        @hookimpl
        def cfk_detect(self, frame: pd.DataFrame, population: Population) -> Any:
            frame.loc[:, "age"] = 0
            rows = population.frame
            rows.loc[:, "age"] = 0
            return [None] * len(frame)

    given = RAW.copy(deep=True)
    plain = KAnonymizer(policy=POLICY).fit(POPULATION, model=model, desired=1).transform(given)
    fitted = KAnonymizer(policy=POLICY, plugins=[Vandal()]).fit(POPULATION, model=model, desired=1)
    assert fitted.transform(given) == plain
    pd.testing.assert_frame_equal(given, RAW)


# --- detection -------------------------------------------------------------------------------------------------


class Says:
    def __init__(self, answer: Callable[[pd.DataFrame], Any]) -> None:
        self._answer = answer

    @hookimpl
    def cfk_detect(self, frame: pd.DataFrame) -> Any:
        return self._answer(frame)


class LoudFinding(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(raw_row(0))


def detect_with(answer: Callable[[pd.DataFrame], Any]) -> Explanations:
    anonymizer = KAnonymizer(policy=POLICY, plugins=[Says(answer)])
    return anonymizer.fit(POPULATION, model=model, desired=1).transform(RAW)


@pytest.mark.parametrize("finding", ["synthetic", "near-native", None])
@pytest.mark.usefixtures("each_guarantee")
def test_plugin_cannot_call_an_alarm_off(finding: Finding | None) -> None:
    result = detect_with(lambda frame: [finding] * len(frame))
    assert result.findings == ("native",) * len(RAW)
    assert result.summary()["native_rate"] == 1.0
    assert len(result.released) == len(RAW)
    assert all(entry.certificate.k >= K for entry in result.released)


@pytest.mark.usefixtures("each_guarantee")
def test_finding_is_the_hosts_own_word() -> None:
    result = detect_with(lambda frame: [LoudFinding("native")] * len(frame))
    assert {type(finding) for finding in result.findings} == {str}


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "answer",
    [
        lambda frame: ["native"],
        lambda frame: [str(raw_row(0))] * len(frame),
        lambda frame: [["native"]] * len(frame),
        lambda frame: 7,
        lambda frame: _raise(ValueError(str(raw_row(0)))),
        lambda frame: _raise(InputError(str(raw_row(0)))),
    ],
)
@pytest.mark.usefixtures("each_guarantee")
def test_broken_detector_stops_the_release(
    answer: Callable[[pd.DataFrame], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert_nothing_leaves(detect_with(answer), {"protector_failed"})
    assert not any(str(age) in caplog.text for age in RAW["age"])


# --- notification ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_guarantee")
def test_listener_that_raises_changes_nothing_and_hears_no_value(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ReleaseRecord] = []

    class Deaf:
        @hookimpl
        def cfk_released(self, record: ReleaseRecord) -> None:
            raise ValueError(str(raw_row(0)))

    class Attentive:
        @hookimpl
        def cfk_released(self, record: ReleaseRecord) -> None:
            heard.append(record)

    caplog.set_level(logging.DEBUG)
    anonymizer = KAnonymizer(policy=POLICY, plugins=[Attentive(), Deaf()])
    result = anonymizer.fit(POPULATION, model=model, desired=1).transform(RAW)
    assert len(result.released) == len(RAW)
    assert [record.k for record in heard] == [entry.certificate.k for entry in result.released]
    assert not any(str(age) in caplog.text + repr(heard) for age in RAW["age"])


# --- adapters --------------------------------------------------------------------------------------------------


class Explainer:
    """Only the adapters below know what to do with it."""

    def __repr__(self) -> str:
        return str(raw_row(0))

    def __str__(self) -> str:
        return str(raw_row(0))


class Source:
    name = "third party"
    instance_based = True

    def __init__(
        self,
        generate: Callable[[pd.DataFrame], Any],
        restore: Callable[[Any, Explanations], Any] = lambda native, explanations: list(explanations),
    ) -> None:
        self._generate, self._restore = generate, restore

    def generate(self, queries: pd.DataFrame, **options: Any) -> Any:
        return self._generate(queries)

    @property
    def methods(self) -> dict[str, Any]:
        return {"counterfactuals": lambda queries: (batch_of(queries), RAW, queries)}

    def restore(self, native: Any, explanations: Explanations) -> Any:
        return self._restore(native, explanations)


class Adapter:
    def __init__(self, source: Any) -> None:
        self._source = source

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        if not isinstance(explainer, Explainer):
            return None
        return self._source() if isinstance(self._source, type(lambda: 0)) else self._source


def batch_of(queries: pd.DataFrame) -> CounterfactualBatch:
    return CounterfactualBatch.one_each(RAW.iloc[: len(queries)], np.ones(len(queries), dtype=bool))


def protected(source: Any, **settings: Any) -> Any:
    return protect(
        Explainer(),
        model=model,
        population=POPULATION,
        policy=POLICY,
        plugins=[Adapter(source)],
        **settings,
    )


@pytest.mark.parametrize("error", [ValueError, KeyError, RecursionError])
@pytest.mark.usefixtures("each_guarantee")
def test_adapter_that_raises_gives_suppressed_entries(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    result = protected(Source(lambda queries: _raise(error(str(raw_row(0)))))).explain(RAW)
    assert_nothing_leaves(result, {"explainer_failed"})
    assert not any(str(age) in caplog.text for age in RAW["age"])


@pytest.mark.parametrize(
    "answer",
    [
        lambda queries: None,
        lambda queries: RAW,
        lambda queries: raw_row(0),
        lambda queries: [raw_row(0)],
        lambda queries: str(raw_row(0)),
        lambda queries: CounterfactualBatch(RAW, np.arange(3), np.array([0, 1, 99])),
        lambda queries: CounterfactualBatch(RAW, np.arange(3), np.array([-1, 0, 1])),
        lambda queries: CounterfactualBatch(RAW, np.zeros(3, dtype=int), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW, np.arange(2), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW[["age"]], np.arange(3), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW.T, np.arange(4), np.arange(4)),
    ],
)
@pytest.mark.usefixtures("each_guarantee")
def test_adapters_unreadable_answer_is_an_error_without_a_value(answer: Callable[[pd.DataFrame], Any]) -> None:
    private = protected(Source(answer))
    result, failure = None, None
    try:
        result = private.explain(RAW)
    except (AdapterError, InputError) as error:
        failure = error
    if failure is None:
        assert_nothing_leaves(result, {"explainer_failed"})
    else:
        said = str(failure)
        assert not any(str(age) in said for age in RAW["age"])
        assert failure.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_adapter_that_fails_to_adapt_is_not_quoted() -> None:
    for broken in (lambda: _raise(ValueError(str(raw_row(0)))), lambda: raw_row(0)):
        with pytest.raises(PluginError) as caught:
            protected(broken)
        assert not any(str(age) in str(caught.value) for age in RAW["age"])
        assert caught.value.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_adapter_must_rebuild_the_native_result() -> None:
    private = protected(Source(batch_of, restore=lambda native, explanations: native))
    with pytest.raises(AdapterError, match="instead of rebuilding"):
        private.counterfactuals(RAW)
    private = protected(Source(batch_of, restore=lambda native, explanations: _raise(ValueError(str(raw_row(0))))))
    with pytest.raises(AdapterError, match="cannot rebuild") as caught:
        private.counterfactuals(RAW)
    assert not any(str(age) in str(caught.value) for age in RAW["age"])
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_proxy_shows_nothing_of_what_it_wraps() -> None:
    private = protected(Source(batch_of))
    for text in (repr(private), str(private), f"{private}", f"{private!s:>200}", "%s" % private):  # noqa: UP031
        assert not any(str(age) in text for age in RAW["age"])
        assert "ProtectedExplainer(third party" in text


def test_random_lies_never_get_through() -> None:
    """Regions drawn at random: what is released has k people by a plain recount, and the counterfactual inside."""
    draw = random.Random(3)

    def part(name: str, i: int) -> Any:
        if name == "age":
            low, high = sorted(draw.sample(TRAIN["age"].tolist(), 2))
            return draw.choice([Interval(low, high), Interval(raw_row(i)["age"], high), Interval(low, 10**6)])
        if name == "city":
            return frozenset(draw.sample(CITIES, draw.randint(1, 4)))
        first, last = sorted(draw.choices(range(3), k=2))
        return Interval("", "", levels=tuple(LEVELS[first : last + 1]))

    released: list[GeneralizedCounterfactual] = []
    for _ in range(60):
        result = run(
            lambda task: [Proposal(Region({q: part(q, i) for q in EVERYTHING})) for i in range(len(task))], "protector"
        )
        released += result.released
    assert 10 < len(released) < 170
    for entry in released:
        inside = [entry.region.contains(row) for row in TRAIN.to_dict("records")]
        assert sum(inside) == entry.certificate.k >= K
        assert entry.region.contains(raw_row(entry.query))


class Speaking(Source):
    """An adapter whose explainer has a method of its own, which does as it is told."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__(lambda queries: None)
        self._method = method

    @property
    def methods(self) -> dict[str, Callable[..., Any]]:
        return {"generate_counterfactuals": self._method}


@pytest.mark.usefixtures("each_guarantee")
def test_exception_of_an_adapters_method_is_not_quoted() -> None:
    def quoting(queries: pd.DataFrame) -> Any:
        raise ValueError(f"could not use {queries.to_dict()}")

    with pytest.raises(AdapterError, match=r"generate_counterfactuals failed \(ValueError\)") as caught:
        protected(Speaking(quoting)).generate_counterfactuals(RAW)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_explainers_own_exception_for_none_found_reaches_the_caller() -> None:
    def nothing(queries: pd.DataFrame) -> Any:
        raise NoneFoundError(LookupError("nothing found"))

    with pytest.raises(LookupError, match="nothing found") as caught:
        protected(Speaking(nothing)).generate_counterfactuals(RAW)
    assert caught.value.__context__ is None
