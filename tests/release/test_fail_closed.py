"""Whatever models, explainers, adapters, protectors and plugins do: nothing leaves but verified
regions.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    hookimpl,
    protect,
)
from cfk_plugin.adapting import CounterfactualBatch, NoneFoundError
from cfk_plugin.errors import AdapterError, CFKError, InputError, ModelError, PluginError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, ReleaseRecord
from commands import cfk

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
SCHEMA = Schema.from_frame(
    TRAIN, quasi_identifiers=["age", "city", "education"], ordinal={"education": LEVELS}
)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
RAW = TRAIN[TRAIN["pay"] > 40].head(3).reset_index(drop=True)
QUERIES = TRAIN[TRAIN["pay"] <= 40].head(3)
SECRET = f"cannot explain {RAW.to_dict('records')}"
POLICIES = {name: PrivacyPolicy(guarantee=name, k=K) for name in ("lookup", "catalogue")}
EVERYTHING = {
    "age": Interval(int(TRAIN["age"].min()), int(TRAIN["age"].max())),
    "city": frozenset(CITIES),
    "education": Interval("low", "high", levels=tuple(LEVELS)),
}


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


def fitted(
    guarantee: Any = "lookup", answer: Any = model, desired: Any = 1, **settings: Any
) -> KAnonymizer:
    anonymizer = KAnonymizer(policy=POLICIES[guarantee], **settings)
    return anonymizer.fit(POPULATION, model=answer, desired=desired)


def quotes_none(*things: Any) -> None:
    """Check that neither texts nor errors show a raw age."""
    shown = ""
    for thing in things:
        shown += thing if isinstance(thing, str) else repr(thing)
        if isinstance(thing, Explanations):
            shown += thing.to_json() + thing.to_frame().to_csv() + thing.audit_frame().to_csv()
            shown += f"{[*thing]} {thing.summary()} {thing.provenance}"
    assert [age for age in RAW["age"] if str(age) in shown] == []


def withheld(explanations: Explanations, reason: str) -> None:
    assert [getattr(entry, "reason", None) for entry in explanations] == [reason] * len(RAW)
    assert explanations.summary()["released_native"] == 0
    quotes_none(explanations)


class Hook:
    """A plugin of one hook."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


class Liar:
    """A protector that answers what it is told to."""

    name = "liar"

    def __init__(self, answer: Callable[[ProtectionRequest], Any]) -> None:
        self.protect = answer


ANSWER: list[Callable[[ProtectionRequest], Any]] = []


@cache
def answering(**policy: Any) -> KAnonymizer:
    """Return what answers with the last of `ANSWER`."""

    def answer(request: ProtectionRequest) -> Any:
        return ANSWER[-1](request)

    liar = Liar(answer)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=K, **policy), method=liar)
    return anonymizer.fit(POPULATION, model=model, desired=1)


def run(answer: Callable[[ProtectionRequest], Any], **policy: Any) -> Explanations:
    ANSWER.append(answer)
    return answering(**policy).transform(RAW)


# --- regions that lie -----------------------------------------------------------------------------


def forged(parts: Any = None, **changes: Any) -> Region:
    """Return the region of everybody, with some parts replaced behind the back of its checks."""
    region = Region(EVERYTHING)
    object.__setattr__(region, "parts", {**EVERYTHING, **changes} if parts is None else parts)
    return region


def raw_row(i: int) -> dict[str, Any]:
    return RAW.iloc[i].to_dict()


def raw_parts(i: int) -> dict[str, Any]:
    age, city, level = RAW.loc[i, ["age", "city", "education"]]
    return {
        "age": Interval(age, age),
        "city": frozenset({city}),
        "education": Interval(level, level, levels=(level,)),
    }


def elsewhere(_: int) -> Region:
    """Return a region with enough people, of which no counterfactual is one."""
    oldest = RAW["age"].max()
    assert (TRAIN["age"] > oldest).sum() >= K
    return Region({**EVERYTHING, "age": Interval(oldest + 1, 10**6)})


class WideWhenVerified(Region):
    """Shows everything to who looks it up, and the raw row to who reads the parts."""

    def __getitem__(self, name: str) -> Any:
        return EVERYTHING[name]

    def contains(self, row: Any) -> bool:
        return True


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

    asked = 0

    def __str__(self) -> str:
        self.asked += 1
        return "Antwerp" if self.asked == 1 else str(raw_row(0))


class TalkingDict(dict[str, Any]):
    """Parts that are other ones each time."""

    def __getitem__(self, name: str) -> Any:
        return raw_parts(0)[name]


LIES: dict[str, Callable[[int], Any]] = {  # malformed parts, one by one: test_verification.py
    "the raw row": lambda i: Region(raw_parts(i)),
    "a raw row as a dict": raw_row,
    "without the counterfactual": elsewhere,
    "a private attribute in the place of another": lambda i: Region(
        {"pay": Interval(0, 99), **{name: EVERYTHING[name] for name in ("city", "education")}}
    ),
    "a region subclass": lambda i: WideWhenVerified(raw_parts(i)),
    "parts that change": lambda i: forged(TalkingDict(EVERYTHING)),
    "an interval that shrinks": lambda i: forged(age=ShiftingInterval(0, 10**6)),
    "a set subclass": lambda i: forged(city=AgreeableSet({raw_row(i)["city"]})),
    "a text for an interval": lambda i: forged(age=str(raw_row(i))),
    "endless": lambda i: forged(age=Interval(-np.inf, np.inf)),
    "unknown levels": lambda i: forged(
        education=Interval("low", "high", levels=(*LEVELS, str(raw_row(i))))
    ),
    "an unknown category": lambda i: forged(city=frozenset({*CITIES, str(raw_row(i))})),
    "not even a region": lambda i: object(),
}


def test_a_region_that_lies_is_withheld() -> None:
    for made in LIES.values():
        ShiftingInterval.looks = 0
        result = run(
            lambda request, made=made: [
                Proposal(made(i), optimal=True, gap=0.0) for i in range(len(request))
            ],
        )
        withheld(result, "verification_failed")


def test_a_lie_costs_the_others_nothing_and_random_ones_are_recounted() -> None:
    draw = random.Random(3)

    def part(name: str, i: int) -> Any:
        if name == "age":
            low, high = sorted(draw.sample(TRAIN["age"].tolist(), 2))
            return draw.choice(
                [Interval(low, high), Interval(raw_row(i)["age"], high), Interval(low, 10**6)]
            )
        if name == "city":
            return frozenset(draw.sample(CITIES, draw.randint(1, 4)))
        first, last = sorted(draw.choices(range(3), k=2))
        return Interval("", "", levels=tuple(LEVELS[first : last + 1]))

    def lies(request: ProtectionRequest) -> list[Proposal]:
        return [
            Proposal(Region({name: part(name, i) for name in EVERYTHING}))
            for i in range(len(request))
        ]

    anonymizer, n = fitted(method=Liar(lies)), 0
    for _ in range(40):
        result = anonymizer.transform(RAW)
        n += len(result.released)
        for entry in result.released:
            assert (
                sum(map(entry.region.contains, TRAIN.to_dict("records")))
                == entry.certificate.k
                >= K
            )
            assert entry.region.contains(raw_row(entry.query))
    assert 10 < n < 110


def test_texts_in_a_region_are_the_populations_own() -> None:
    def talking() -> Region:
        note, cities = str(raw_row(0)), frozenset({TalkingValue(), "Bruges", "Ghent", "Namur"})
        return forged(city=cities, education=Interval(note, note, levels=tuple(LEVELS)))

    result = run(lambda request: [Proposal(talking()) for _ in range(len(request))])
    assert [entry.region for entry in result.released] == [Region(EVERYTHING)] * len(RAW)
    assert {type(city) for city in result.released[0].region["city"]} == {str}
    assert not any(f"'age': {age}" in repr([*result]) + result.to_json() for age in RAW["age"])


def test_a_region_cannot_be_changed_after_it_was_verified() -> None:
    region = forged(age=Interval(EVERYTHING["age"].low, EVERYTHING["age"].high))
    result = run(lambda request: [Proposal(region)] * len(request))
    before = result.to_json()
    object.__setattr__(region["age"], "low", raw_row(0)["age"])
    object.__setattr__(region, "parts", {"age": "raw"})
    assert len(result.released) == len(RAW)
    assert result.to_json() == before


# --- answers that are none, and claims ------------------------------------------------------------

NO_ANSWERS: list[Callable[[ProtectionRequest], Any]] = [
    lambda request: [Proposal(forged())] * (len(request) - 1),
    lambda request: [Proposal(forged())] * (len(request) + 1),
    lambda request: [],
    lambda request: [forged()] * len(request),
    lambda request: (
        [type("Proposal", (), {"region": forged(), "optimal": True, "gap": 0.0})()] * len(request)
    ),
    lambda request: [type("Talking", (Proposal,), {"__slots__": ()})(forged())] * len(request),
    lambda request: [None] * len(request),
    lambda request: {i: raw_row(i) for i in range(len(request))},
    lambda request: RAW,
    lambda request: 4711,
    lambda request: "abc",
    lambda request: (Proposal(Region(raw_parts(i))) for i in range(len(request) - 1)),
]


def test_what_is_no_answer_is_withheld() -> None:
    for answer in NO_ANSWERS:
        withheld(run(answer), "protector_failed")
    withheld(run(lambda request: [Proposal(None, optimal=True)] * len(request)), "infeasible")


def test_none_is_no_answer_of_a_protector() -> None:
    withheld(run(lambda request: None), "protector_failed")


def test_figures_are_recounted_and_claims_named_beside_who_claims() -> None:
    result = run(lambda request: [Proposal(forged(), optimal=True, gap=0.0)] * len(request))
    assert len(result.released) == len(RAW)
    for certificate in (entry.certificate for entry in result.released):
        # pay alone decides, and it stays
        assert (certificate.k, certificate.pureness) == (len(TRAIN), 1.0)
        assert certificate.ncp == pytest.approx(1.0)
        assert (certificate.method, certificate.optimal, certificate.gap) == ("liar", True, 0.0)
    for gap in ("raw", [1], object(), float("nan"), -1.0):
        result = run(
            lambda request, gap=gap: [Proposal(forged(), optimal=gap, gap=gap)] * len(request),
        )
        assert not any(
            entry.certificate.optimal or entry.certificate.gap for entry in result.released
        )
        result.to_json()
    withheld(
        run(lambda request: [Proposal(forged())] * len(request), max_ncp=0.5),
        "ncp_above_ceiling",
    )


def test_a_built_in_name_is_taken_and_a_name_cannot_carry_a_row_out() -> None:
    liar = Liar(lambda request: [Proposal(forged())] * len(request))
    for name, said in (
        ("exact", "'exact'"),
        (None, "name or a protector"),
        (["exact"], "name or a protector"),
    ):
        liar.name = name  # type: ignore[assignment]
        with pytest.raises(InputError, match=said):
            fitted(method=liar)

    def renaming(request: ProtectionRequest) -> Any:
        liar.name = str(raw_row(0))
        return [Proposal(forged())] * len(request)

    liar.name, liar.protect = "liar", renaming
    result = fitted(method=liar).transform(RAW)
    assert {entry.certificate.method for entry in result.released} == {"liar"}
    raw = Liar(lambda request: [Proposal(Region(raw_parts(0)))] * len(request))
    usurper = Hook("register_protectors", lambda: {"exact": lambda: raw, "mine": lambda: raw})
    assert len(fitted(plugins=[usurper]).transform(RAW).released) == len(RAW)
    withheld(fitted(method="mine", plugins=[usurper]).transform(RAW), "verification_failed")


# --- what they are given --------------------------------------------------------------------------


def test_changes_to_the_task_reach_nobody() -> None:
    def vandal(request: ProtectionRequest) -> list[Proposal]:
        request.rows[:] = 0.0
        object.__setattr__(request.policy, "k", 1)
        return [Proposal(Region(raw_parts(0)))] + [
            Proposal(elsewhere(i)) for i in range(1, len(request))
        ]

    withheld(run(vandal), "verification_failed")


def test_a_population_cannot_be_changed() -> None:
    population = Population.from_frame(TRAIN, SCHEMA)
    fingerprint = population.fingerprint
    arrays = [
        population.coded_rows,
        population.classes,
        population.class_of_row,
        population.person_of_row,
        *(column.values for column in population.row_codes.columns),
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[:] = array[::-1]
    attempts: list[Callable[[Population], Any]] = [
        lambda p: setattr(p.row_codes, "columns", ()),
        lambda p: setattr(p, "classes", None),
        lambda p: setattr(p, "frame", None),
    ]
    for attempt in attempts:
        with pytest.raises(AttributeError):
            attempt(population)
    with contextlib.suppress(ValueError):  # pandas 3 refuses, pandas 2 writes into the copy
        population.frame.loc[:, "age"].to_numpy()[0] = 1
    taken = population.frame
    taken.loc[:, "age"] = 1
    pd.testing.assert_frame_equal(population.frame, table())
    assert population.fingerprint == fingerprint


def test_a_detector_changes_nothing_and_calls_no_alarm_off() -> None:
    class Loud(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return str(raw_row(0))

    def vandal(frame: pd.DataFrame, population: Population) -> Any:
        frame.loc[:, "age"] = 0
        rows = population.frame
        rows.loc[:, "age"] = 0
        return [None, "synthetic", Loud("native")]

    given = RAW.copy(deep=True)
    result = fitted(plugins=[Hook("detect", vandal)]).transform(given)
    assert result == fitted().transform(given)
    assert result.findings == ("native",) * len(RAW)
    assert {type(finding) for finding in result.findings} == {str}
    pd.testing.assert_frame_equal(given, RAW)
    pd.testing.assert_frame_equal(POPULATION.frame, TRAIN)
    for answer in (["native"], [str(raw_row(0))] * len(RAW), [["native"]] * len(RAW), 7):
        withheld(
            fitted(plugins=[Hook("detect", lambda answer=answer: answer)]).transform(RAW),
            "protector_failed",
        )


# --- whatever is raised ---------------------------------------------------------------------------


class PanicException(BaseException):
    """Stands for the one of PyO3, by which libraries written in Rust end a call: it is no
    `Exception`.
    """


class NotANameError(Exception):
    """An exception whose class has a row for a name."""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


NotANameError.__name__ = SECRET
THROWN: list[type[BaseException]] = [
    ValueError, SystemExit, PanicException, GeneratorExit, StopIteration, RecursionError, NotANameError,
    UnprintableError,
]  # fmt: skip


def thrower(thrown: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise thrown from cause

    return fail


class Source:
    """An adapter of its own, of which parts may fail."""

    name, instance_based = "third party", True

    def __init__(self, **parts: Any) -> None:
        self.methods = {"counterfactuals": lambda queries: (self.generate(queries), RAW, queries)}
        for name, part in parts.items():
            setattr(self, name, part)

    def generate(self, queries: pd.DataFrame) -> Any:
        return CounterfactualBatch.one_each(
            RAW.iloc[: len(queries)], np.ones(len(queries), dtype=bool)
        )

    def restore(self, native: Any, explanations: Explanations) -> Any:
        return explanations.to_frame()


class Explainer:
    """Only the adapters below know what to do with it."""

    def __repr__(self) -> str:
        return SECRET


def adapted(source: Any, **settings: Any) -> Any:
    settings = {"model": model, "policy": POLICIES["lookup"], "desired": 1, **settings}
    return protect(
        Explainer(), population=POPULATION, plugins=[Hook("adapt", lambda: source)], **settings
    )


@pytest.mark.parametrize("at", ["explainer", "adapter", "model", "detect", "released", "protector"])
def test_what_is_thrown_while_explaining_withholds_the_answers_or_refuses_the_call(
    caplog: pytest.LogCaptureFixture, at: str
) -> None:
    caplog.set_level(logging.DEBUG)
    now: list[BaseException] = []

    def fail(*_: Any, **__: Any) -> Any:
        thrower(now[0])()

    settings: dict[str, Any] = {}
    if at in ("detect", "released"):
        settings["plugins"] = [Hook(at, fail)]
    if at == "adapter":
        settings["plugins"] = [Hook("adapt", lambda: Source(generate=fail))]
    if at == "protector":
        settings["method"] = Liar(fail)
    private = protect(
        fail if at == "explainer" else lambda rows: RAW,
        model=lambda rows: fail() if at == "model" and now else model(rows),
        population=POPULATION,
        policy=POLICIES["lookup"],
        desired=1,
        **settings,
    )
    # an adapter's own may be said
    errors = [InputError, ModelError] if at not in ("explainer", "adapter") else []
    for kind in [*THROWN, *errors]:
        now[:] = [kind(SECRET)]
        caplog.clear()
        # which refuses the whole call: nothing is left to answer
        if at in ("explainer", "adapter"):
            with pytest.raises(AdapterError, match=r"the (explainer|adapter) raised") as caught:
                private.explain(QUERIES)
            quotes_none(caught.value, caplog.text)
            assert ("an error" if kind is NotANameError else kind.__name__) in str(caught.value)
            continue
        explanations = private.explain(QUERIES)
        if at == "released":
            assert len(explanations.released) == len(RAW)
        else:
            by_model = at == "model" or (at == "protector" and kind is ModelError)
            withheld(explanations, "model_failed" if by_model else "protector_failed")
        quotes_none(caplog.text)
        # the operator learns what kind of failure it was
        if at not in ("model", "detect"):
            assert ("an error" if kind is NotANameError else kind.__name__) in caplog.text


@pytest.mark.parametrize("at", ["method", "generate", "restore"])
def test_what_is_thrown_by_an_explainers_own_method_is_an_adapter_error(
    caplog: pytest.LogCaptureFixture, at: str
) -> None:
    for kind in THROWN:
        fail = thrower(kind(SECRET))
        parts = {"methods": {"counterfactuals": fail}} if at == "method" else {at: fail}
        private = adapted(Source(**parts))
        with pytest.raises(AdapterError) as caught:
            private.counterfactuals(QUERIES)
        quotes_none(caught.value, caplog.text)
    native = adapted(Source(restore=lambda native, explanations: native))
    with pytest.raises(AdapterError, match="instead of rebuilding"):
        native.counterfactuals(QUERIES)


def test_an_own_method_that_returns_no_batch_is_an_adapter_error() -> None:
    source = Source(methods={"counterfactuals": lambda queries: (RAW, RAW, queries)})
    with pytest.raises(AdapterError, match="DataFrame instead of a CounterfactualBatch") as caught:
        adapted(source).counterfactuals(QUERIES)
    quotes_none(caught.value)


def test_an_own_way_to_explain_reports_its_progress() -> None:
    source = Source()
    source.methods = {"explain": lambda _: (source.generate(QUERIES), RAW, QUERIES)}
    reports: list[tuple[int, int]] = []
    private = adapted(source)
    private.explain(QUERIES.to_numpy(), progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (len(QUERIES), len(QUERIES))


def test_an_explainers_own_exception_for_none_found_reaches_the_caller() -> None:
    private = adapted(
        Source(methods={"counterfactuals": thrower(NoneFoundError(LookupError("nothing found")))})
    )
    with pytest.raises(LookupError, match="nothing found"):
        private.counterfactuals(QUERIES)


@pytest.mark.parametrize("at", ["model", "desired", "cfk_adapt", "cfk_register_protectors"])
def test_what_is_thrown_while_fitting_is_an_error_of_ours(
    caplog: pytest.LogCaptureFixture, at: str
) -> None:
    for kind in THROWN:
        fail = thrower(kind(SECRET))
        asked: dict[str, Any] = {
            "model": model,
            "desired": 1,
            "population": POPULATION,
            "policy": POLICIES["lookup"],
        }
        asked |= (
            {"plugins": [Hook(at.removeprefix("cfk_"), fail)]}
            if at.startswith("cfk_")
            else {at: fail}
        )
        with pytest.raises(CFKError) as caught:
            protect(lambda rows: RAW, **asked)
        quotes_none(caught.value, caplog.text)
    unsure = type(
        "Unsure", (Source,), {"methods": property(thrower(ValueError(SECRET)), lambda *_: None)}
    )
    for source in (raw_row(0), unsure()):
        with pytest.raises(PluginError) as caught:
            adapted(source)
        quotes_none(caught.value)


def test_interrupt_of_the_operator_passes() -> None:
    private = protect(
        thrower(KeyboardInterrupt()),
        model=model,
        population=POPULATION,
        policy=POLICIES["lookup"],
        desired=1,
    )
    with pytest.raises(KeyboardInterrupt):
        private.explain(QUERIES)


class Panicking:
    def predict(self, rows: pd.DataFrame) -> Any:
        raise PanicException(SECRET)


def test_the_command_line_says_one_line_of_a_model_that_panics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    joblib.dump(Panicking(), "model.joblib")
    TRAIN.to_csv("train.csv", index=False)
    RAW.to_csv("found.csv", index=False)
    Path("schema.json").write_text('{"quasi_identifiers": ["age", "city"]}')
    done = cfk(
        "protect train.csv found.csv --factuals train.csv -s schema.json -m model.joblib"
        " --desired 1 --k 5",
        code=2,
    )
    said = (
        "cfk: the model raised PanicException on 90 rows; many models need numbers, and have none"
        " in columns 'city', 'education'; call model.predict(train[features].head()) yourself to see the error."
        " If the model wants its rows encoded, give a pipeline that encodes them, or a function:"
        " model=lambda rows: model.predict(encode(rows))\n"
    )
    assert (done.stdout, done.stderr) == ("", said)


# --- models that answer badly ---------------------------------------------------------------------

BROKEN_MODELS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "raises": thrower(ValueError(SECRET)),
    "one label too few": lambda rows: model(rows)[:-1],
    "one label too many": lambda rows: np.append(model(rows), 1),
    "None": lambda rows: None,
    "one number": lambda rows: 1,
    "a text": lambda rows: "yes",
    "probabilities of two classes": lambda rows: np.column_stack(
        [1 - model(rows) / 3, model(rows) / 3]
    ),
    "probabilities": lambda rows: 0.2 + model(rows) * 0.6,
    "missing labels": lambda rows: np.where(np.arange(len(rows)) == 0, np.nan, 1),
    "missing objects": lambda rows: np.where(np.arange(len(rows)) == 0, None, 1),
    "ragged": lambda rows: [[1]] * (len(rows) - 1) + [[1, 2]],
    "the rows themselves": lambda rows: rows,
}


class Fragile:
    """Works for some calls, then not any more."""

    def __init__(self, broken: Callable[[pd.DataFrame], Any], calls: int) -> None:
        self.broken, self.left = broken, calls

    def predict(self, rows: pd.DataFrame) -> Any:
        self.left -= 1
        return model(rows) if self.left >= 0 else self.broken(rows)


@pytest.mark.parametrize("desired", [1, "opposite"])
@pytest.mark.parametrize("kind", BROKEN_MODELS)
def test_a_broken_model_is_refused_and_later_withholds(
    kind: str, desired: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ModelError) as caught:
        fitted(answer=BROKEN_MODELS[kind], desired=desired)
    quotes_none(caught.value)
    fragile = Fragile(BROKEN_MODELS[kind], 10**6)
    anonymizer = fitted(answer=fragile, desired=desired)
    fragile.left = 0
    withheld(anonymizer.transform(RAW), "model_failed")
    quotes_none(caplog.text)


@pytest.mark.parametrize("guarantee", POLICIES)
def test_a_model_that_breaks_at_any_call_gives_no_explanation(
    guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fragile = Fragile(lambda rows: model(rows)[:-1], 10**6)
    anonymizer = fitted(guarantee, fragile)
    fitting = 10**6 - fragile.left
    for calls in {0, fitting // 2, fitting - 1}:
        with pytest.raises(ModelError):
            fitted(guarantee, Fragile(fragile.broken, calls))
    private = protect(
        lambda rows: RAW, model=fragile, population=POPULATION, policy=POLICIES[guarantee]
    )
    for ask in (
        lambda: anonymizer.transform(RAW, QUERIES.reset_index(drop=True)),
        lambda: private.explain(QUERIES),
    ):
        for calls in range(20):
            fragile.left = calls
            result = ask()
            if fragile.left >= 0:
                break
            withheld(result, "model_failed")
        assert len(result.released) == len(RAW)
        assert calls
    quotes_none(caplog.text)


def test_a_label_that_is_new_is_not_desired_or_one_of_a_broken_model() -> None:
    """Without known classes a label nobody asked for is not the desired one; with them it is a
    broken model.
    """

    class Classifier(Fragile):
        classes_ = np.array([0, 1])

    def sevens(rows: pd.DataFrame) -> Any:
        return np.full(len(rows), 7)

    withheld(fitted(answer=Fragile(sevens, 1)).transform(RAW), "not_desired")
    for desired in (1, "opposite"):
        with pytest.raises(ModelError, match="not one of its classes"):
            fitted(answer=Classifier(sevens, 0), desired=desired)
        withheld(
            fitted(answer=Classifier(sevens, 1), desired=desired).transform(RAW), "model_failed"
        )


# --- adapters that answer badly -------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda queries: None,
        lambda queries: RAW,
        lambda queries: [raw_row(0)],
        lambda queries: CounterfactualBatch(RAW, np.arange(3), np.array([0, 1, 99])),
        lambda queries: CounterfactualBatch(RAW, np.arange(3), np.array([-1, 0, 1])),
        lambda queries: CounterfactualBatch(RAW, np.zeros(3, dtype=int), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW, np.arange(2), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW[["age"]], np.arange(3), np.arange(3)),
        lambda queries: CounterfactualBatch(RAW.T, np.arange(4), np.arange(4)),
    ],
)
def test_an_adapters_unreadable_answer_is_an_error_without_a_value(
    answer: Callable[[pd.DataFrame], Any],
) -> None:
    private = adapted(Source(generate=answer))
    with pytest.raises((AdapterError, InputError)) as caught:
        private.explain(QUERIES)
    quotes_none(caught.value)


def test_a_listener_hears_figures_and_a_proxy_shows_its_name() -> None:
    heard: list[ReleaseRecord] = []
    deaf = Hook("released", thrower(ValueError(SECRET)))

    def listen(record: ReleaseRecord) -> None:
        heard.append(record)

    result = fitted(plugins=[Hook("released", listen), deaf]).transform(RAW)
    assert [record.k for record in heard] == [entry.certificate.k for entry in result.released]
    assert len(heard) == len(RAW)
    private = adapted(Source())
    shown = [repr(private), str(private), f"{private}", f"{private!s:>200}", "%s" % private]  # noqa: UP031
    assert all("ProtectedExplainer(third party" in text for text in shown)
    quotes_none(repr(heard), *shown)
