"""Canaries: every value of every training row is a sentinel, and none of them may turn up outside
released entries.

What may turn up is computed from the released entries themselves: ends of intervals, members of
sets, private values.
"""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import secrets
import socket
import struct
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Region,
    Schema,
    hookimpl,
    protect,
)
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.data.encoded_table import Counterfactual, encode
from cfk_plugin.errors import CFKError
from cfk_plugin.hookspecs import AdaptContext, Proposal, ProtectionRequest
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import ExactProtector
from cfk_plugin.protection.partition.neighbors import NearestClasses
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.shipper import shipper
from cfk_plugin.release.explainer import _WRAPPED

N = 120
QUASI = ["age", "size", "town", "seen"]
FEATURES = [*QUASI, "pay", "debt", "note"]


def table() -> pd.DataFrame:
    """Return rows in which no value occurs twice, and none by chance anywhere else."""
    rng = np.random.default_rng(99)
    order = [rng.permutation(N) for _ in range(6)]
    return pd.DataFrame(
        {
            "name": [f"CANARY-NAME-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
            "person": [f"CANARY-PERSON-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
            "age": 730_000_019 + 7_919 * order[0],
            "size": 3_141.592_7 + 61.803_39 * order[1],
            "town": [f"CANARY-TOWN-{i:03d}-{secrets.token_hex(4)}" for i in order[2]],
            "seen": pd.Timestamp("2011-07-03 05:17:43.918273")
            + pd.to_timedelta(order[3] * 1_234_567_891, unit="us"),
            "pay": 860_000_011 + 104_729 * order[4],
            "debt": 2_718.281_8 + 57.721_566 * order[5],
            "note": [f"CANARY-NOTE-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
        }
    )


TRAIN = table()
CUT = int(TRAIN["pay"].median()) - 17
OPTIONS: dict[str, Any] = {
    "quasi_identifiers": QUASI, "sensitive": ["debt"], "identifiers": ["name"], "subject": "person",
}  # fmt: skip
SCHEMA = Schema.from_frame(TRAIN, **OPTIONS)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
POLICIES = {
    # exact private values, as the table's free text has no value that could be shared
    name: PrivacyPolicy(k=5, guarantee=name)
    for name in ("lookup", "catalogue")
}
QUERIES = TRAIN.loc[TRAIN["pay"] <= CUT, FEATURES].head(4)
WANTED = TRAIN.loc[TRAIN["pay"] > CUT, FEATURES].head(4)


# --- looking for them -----------------------------------------------------------------------------


def spellings(value: Any) -> set[str]:
    if isinstance(value, pd.Timestamp):
        micro = value.value // 1000
        plain = str(value)
        return {
            plain,
            plain.replace(" ", "T"),
            repr(value),
            str(value.value),
            str(micro),
            plain.split(" ")[1],
        }
    if isinstance(value, float):
        return {repr(value), f"{value:.10g}", f"{value:.4f}", f"{value:,.4f}", f"{value:.6e}"}
    if isinstance(value, int):
        return {str(value), f"{value:,}", f"{value:_}", f"{value:.9e}"}
    return {str(value)}


def images(value: Any) -> set[bytes]:
    """Return how a file may hold a value."""
    found = {text.encode(form) for text in spellings(value) for form in ("ascii", "utf-16-le")}
    if isinstance(value, pd.Timestamp):
        return found | {struct.pack("<q", value.value), struct.pack("<q", value.value // 1000)}
    if isinstance(value, int):
        found |= {struct.pack("<q", value), struct.pack(">q", value)}
    if isinstance(value, (int, float)):
        found |= {struct.pack("<d", float(value)), struct.pack(">d", float(value))}
    return found


SENTINELS = [value for name in TRAIN for value in TRAIN[name].tolist()]
IMAGES = [(image, value) for value in SENTINELS for image in images(value)]
# each is that long
ENDS = np.array([int.from_bytes(image[-7:], "little") for image, _ in IMAGES], dtype="<u8")


def sentinels_in(content: str | bytes) -> set[Any]:
    """Return the sentinels that a text or a file holds in any form: all their ends are looked up at
    once.
    """
    data = bytes(8) + (content.encode(errors="replace") if isinstance(content, str) else content)
    runs = [
        np.frombuffer(data[i : len(data) - (len(data) - i) % 8], dtype="<u8") >> 8 for i in range(8)
    ]
    at = np.flatnonzero(np.isin(ENDS, np.concatenate(runs)))
    return {IMAGES[i][1] for i in at if IMAGES[i][0] in data}


def released_values(results: Sequence[Explanations]) -> set[Any]:
    """Return every value that the released entries show."""
    shown: set[Any] = set()
    for result in results:
        for entry in result:
            if isinstance(entry, GeneralizedCounterfactual):
                shown |= set(entry.released.values())
                for part in entry.region.values():
                    shown |= {part.low, part.high} if isinstance(part, Interval) else set(part)
    return shown


def assert_clean(
    content: str | bytes, results: Sequence[Explanations] = (), what: str = "", but: Any = ()
) -> None:
    """Check that something holds no sentinel but those that were released, be it rounded (DiCE
    rounds).
    """
    shown = released_values(results) | set(but)
    numbers = np.array([value for value in shown if isinstance(value, float)] or [np.inf])
    found = sentinels_in(content) - shown
    found = {
        value
        for value in found
        if not (isinstance(value, float) and np.abs(numbers - value).min() < 1e-3)
    }
    assert not found, (
        f"{what or content[:200]!r} shows {len(found)} values, for example {min(found, key=str)!r}"
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > CUT).to_numpy().astype(int)


def everything(error: BaseException | None, seen: set[int] | None = None) -> str:
    """Return all that an exception says, as do those it comes from."""
    seen = set() if seen is None else seen
    if error is None or id(error) in seen:
        return ""
    seen.add(id(error))
    own = "".join(traceback.format_exception(error)) + repr(error) + str(error) + repr(error.args)
    own += repr(getattr(error, "__notes__", ""))
    return own + everything(error.__cause__, seen) + everything(error.__context__, seen)


class Watch:
    """Collects what leaves by the side doors."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self.caplog, self.capfd = caplog, capfd
        self.results: list[Explanations] = []
        self.errors: list[BaseException] = []
        self.warned: list[warnings.WarningMessage] = []

    def run(self, call: Callable[[], Any]) -> Any:
        """Call; keep its result or its exception."""
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - this is what is examined
            self.errors.append(error)
            return None
        if isinstance(result, Explanations):
            self.results.append(result)
        return result

    def explain(self, explainer: Any, queries: Any = QUERIES, **settings: Any) -> Any:
        """Protect an explainer and ask it; whatever comes of it is kept."""
        settings = {"model": model, "population": POPULATION, **settings}
        return self.run(lambda: protect(explainer, **settings).explain(queries))

    def check(self) -> None:
        assert {type(error) for error in self.errors if not isinstance(error, CFKError)} == set()
        said = [everything(error) for error in self.errors]
        for record in self.caplog.records:
            said.append(record.getMessage() + repr(record.args))
            said.append(everything(record.exc_info[1]) if record.exc_info else "")
        said += [str(warning.message) + str(warning.source) for warning in self.warned]
        assert_clean("\n".join([*said, *self.capfd.readouterr()]), self.results)
        for result in self.results:
            assert_clean("\n".join(outputs(result)), [result])


def outputs(result: Explanations) -> Iterator[str]:
    """Yield everything that a result can write."""
    shown, audit, about = result.to_frame(), result.audit_frame(), result.about
    things = (
        result,
        result.summary(),
        result.provenance,
        result.findings,
        result.policy,
        result[1:],
    )
    yield from (
        repr(thing)
        for thing in (*things, about, about.population, about.environment, audit.to_dict())
    )
    yield from (str(result), result.to_json(), shown.to_csv(), shown.to_string(), audit.to_csv())
    stranger = {**dict.fromkeys(QUASI, 0), "town": "here", "seen": pd.Timestamp("2001-01-01")}
    stranger |= {"pay": 1, "debt": 1.0, "note": "x"}
    yield result._repr_html_() + result.policy._repr_html_() + result[1:]._repr_html_()
    yield result.summary()._repr_html_()
    for entry in result:
        yield entry._repr_html_() + (
            entry.certificate._repr_html_() if entry.status == "released" else ""
        )
        yield repr(entry) + str(entry) + repr(entry.to_dict()) + entry.text(stranger)
        if isinstance(entry, GeneralizedCounterfactual):
            yield (
                repr(entry.cells())
                + repr(entry.certificate)
                + repr(entry.region)
                + repr(entry.region.to_dict())
            )
            yield repr(entry.certificate.to_dict()) + repr(entry.parts())
            yield repr(entry.recount) + repr(entry.recount.to_dict())


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Watch]:
    watching = Watch(caplog, capfd)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="numba")  # its compiler log is long, and about types
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        watching.warned = warned
        yield watching
    watching.check()


def test_sentinels_are_found() -> None:
    """The test's own eyes: each spelling of a value is seen, and a released one is let through."""
    for name in ("age", "size", "town", "seen", "pay", "debt", "note"):
        value = TRAIN[name].tolist()[3]
        for image in images(value):
            assert sentinels_in(b"before " + image + b" after") == {value}
        with pytest.raises(AssertionError, match="shows 1 values"):
            assert_clean(f"before {value} after")
        assert_clean(f"before {value} after", but=[value])
    with pytest.raises(AssertionError, match="for example"):
        assert_clean(TRAIN.to_string())
    for name in ("age", "size", "pay", "debt"):
        assert len(sentinels_in(b"x" + TRAIN[name].to_numpy().tobytes())) == N
    assert len(set(SENTINELS)) == TRAIN.size
    assert min(len(image) for image, _ in IMAGES) >= 7
    assert_clean("730000018 CANARY-TOWN 2011-07-03")


# --- results --------------------------------------------------------------------------------------


def nearest() -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)


class Native:
    """An explainer with a method and a type of result of its own."""

    def __repr__(self) -> str:
        return str(WANTED.to_dict("records"))

    def generate_counterfactuals(self, queries: pd.DataFrame) -> pd.DataFrame:
        return WANTED


WAYS: dict[str, dict[str, Any]] = {
    **{name: {"policy": policy} for name, policy in POLICIES.items()},
    **{name: {"policy": POLICIES["lookup"], "method": name} for name in ("grasp", "mondrian")},
}


@pytest.mark.parametrize("way", WAYS)
def test_results(watch: Watch, way: str) -> None:
    settings = {"model": model, "population": POPULATION, **WAYS[way]}
    private = protect(nearest(), **settings)
    result = watch.run(lambda: private.explain(QUERIES))
    assert set(result.findings) == {"native"}
    assert len(result.released) == len(QUERIES)
    assert_clean(repr(private) + str(private) + repr(nearest()))
    anonymizer = KAnonymizer(**WAYS[way])
    assert_clean(anonymizer._repr_html_() + anonymizer.fit(POPULATION, model, 1)._repr_html_())
    assert_clean(POPULATION._repr_html_() + private._repr_html_())
    assert_clean(POPULATION.schema._repr_html_() + POPULATION.risk_profile()._repr_html_())
    own = protect(Native(), **settings)
    assert len(watch.run(lambda: own.explain(QUERIES)).released) == len(QUERIES)
    native = own.generate_counterfactuals(QUERIES)
    assert isinstance(native, pd.DataFrame)
    assert_clean(native.to_csv() + repr(native.to_dict()) + repr(native.attrs), watch.results)
    assert_clean(repr(own) + str(own) + f"{own}")
    answer = WANTED.astype(object).reset_index(drop=True)
    answer.loc[0, "town"] = f"{TRAIN['town'][5]}-{TRAIN['town'][6]}"
    answer.loc[1, "age"] = f"about {TRAIN['age'][7]}"
    answer.loc[2, FEATURES] = TRAIN.loc[QUERIES.index[0], FEATURES].tolist()
    result = watch.explain(lambda rows: answer, **settings, desired=1)
    assert [getattr(e, "reason", None) for e in result] == [
        "unknown_category",
        "invalid_value",
        "not_desired",
        None,
    ]


def test_catalogue_without_an_explainer(watch: Watch) -> None:
    anonymizer = KAnonymizer(policy=POLICIES["catalogue"]).fit(
        POPULATION, model=model, desired="opposite"
    )
    assert len(watch.run(lambda: anonymizer.explain(QUERIES)).released) == len(QUERIES)
    broken = QUERIES.astype(object)
    broken.iloc[0, 0] = f"about {TRAIN['age'][7]}"
    for queries in (broken, QUERIES.set_index("town").T, QUERIES.to_dict("records")):
        watch.run(lambda queries=queries: anonymizer.explain(queries))
    assert len(watch.errors) == 2


def test_dice(watch: Watch) -> None:
    dice_ml = pytest.importorskip("dice_ml")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.tree import DecisionTreeClassifier

    known = TRAIN[FEATURES].drop(columns="seen")
    people = Population.from_frame(
        known, Schema.from_frame(known, quasi_identifiers=["age", "size", "town"])
    )
    numbers = FunctionTransformer(lambda rows: rows[["age", "pay"]].astype(float))
    tree = make_pipeline(numbers, DecisionTreeClassifier(max_depth=1)).fit(known, model(TRAIN))
    data = dice_ml.Data(
        dataframe=known.assign(outcome=model(TRAIN)),
        continuous_features=["age", "size", "pay", "debt"],
        outcome_name="outcome",
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=tree, backend="sklearn"), method="kdtree")
    private = protect(
        explainer, model=tree, population=people, policy=PrivacyPolicy(guarantee="lookup", k=5)
    )
    queries = known.loc[QUERIES.index].head(2)
    # the other one takes steps of 1 over the range
    options = {"total_CFs": 2, "posthoc_sparsity_algorithm": "binary"}
    result = watch.run(lambda: private.explain(queries, **options))
    assert "native" in result.findings
    assert len(result.released) == 4
    native = private.generate_counterfactuals(queries, **options)
    text = native.to_json() + "".join(
        str(frame.to_dict())
        for examples in native.cf_examples_list
        for frame in (examples.final_cfs_df, examples.final_cfs_df_sparse)
        if frame is not None
    )
    with warnings.catch_warnings(action="ignore"):
        held = pickle.dumps(native)  # the caller's own result: what it holds is what it shows
    for content in (text, held):
        assert_clean(content, watch.results, but=queries.to_numpy().ravel().tolist())
    assert_clean(repr(private) + str(private))


# --- failures -------------------------------------------------------------------------------------


def quote(*_: Any, **__: Any) -> Any:
    """Fail as carelessly as code can: rows in the text, the arguments, the notes and the exceptions
    before.
    """
    try:
        raise KeyError(TRAIN.to_dict("records"))
    except KeyError as first:
        error = ValueError(f"cannot use {TRAIN.to_string()}", TRAIN["town"].tolist())
        error.add_note(str(TRAIN["age"].tolist()))
        raise error from first


class Late:
    """A model that fails after some calls."""

    def __init__(self, calls: int = 10**6) -> None:
        self.left = calls

    def predict(self, rows: pd.DataFrame) -> Any:
        self.left -= 1
        return model(rows) if self.left >= 0 else quote()


@pytest.mark.parametrize(("guarantee", "desired"), [("lookup", "opposite"), ("lookup", 1)])
def test_models_that_fail_while_releasing(watch: Watch, guarantee: str, desired: Any) -> None:
    """Wherever the model fails, every entry is withheld, and none is raw."""
    failing, settings = (
        Late(),
        {"population": POPULATION, "policy": POLICIES[guarantee], "desired": desired},
    )
    private = protect(nearest(), model=failing, **settings)
    for calls in range(40):
        failing.left = calls
        result = watch.run(lambda: private.explain(QUERIES.head(2)))
        assert len(result) == 2
        if failing.left >= 0:
            break
        assert not result.released
    assert len(result.released) == 2
    assert calls > 0


class Hook:
    """A plugin with one hook."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


def batch(frame: pd.DataFrame, query: Any) -> Callable[..., Any]:
    return lambda queries: CounterfactualBatch(frame, np.arange(len(frame)), np.array(query))


def test_sources_that_break_their_rules(watch: Watch) -> None:
    class Source:
        name, instance_based, methods = "quoting", True, {}

        def __init__(self, answer: Callable[..., Any]) -> None:
            self.generate = answer

        def restore(self, native: Any, explanations: Any) -> Any: ...

    answers = [
        quote,
        lambda queries: WANTED,
        batch(WANTED, [0, 1, 2, 9]),
        batch(WANTED[["town"]], [0, 0, 1, 1]),
    ]
    answers += [
        batch(WANTED.assign(town=[TRAIN.to_dict()] * 4), [0, 0, 1, 1]),
        batch(WANTED, [0, 0, 0, 0]),
    ]
    adapter = Hook("adapt", lambda explainer: Source(explainer))  # noqa: PLW0108 - a hook's argument goes by its name
    for answer in answers:
        watch.explain(answer, policy=POLICIES["lookup"], plugins=[adapter], desired=1)
    assert len(watch.errors) == 4
    assert [len(result.released) for result in watch.results] == [0, 4]
    assert [len(result) for result in watch.results] == [len(QUERIES)] * 2


UNREADABLE: list[Any] = [
    quote,
    lambda rows: WANTED.set_index("town").T,
    lambda rows: str(TRAIN.to_dict()),
    lambda rows: TRAIN.to_dict(),
    lambda rows: TRAIN,
    lambda rows: WANTED.head(2).reset_index(drop=True).rename(index=lambda i: i + 900),
    lambda rows: TRAIN[["town"]],
    lambda rows: WANTED.to_numpy()[:, :3],
    lambda rows: [{TRAIN["town"][0]: 1}, {"a": 1}],
    *(
        lambda rows, answer=answer: answer
        for answer in (7, "rows", object(), [[1, 2]], WANTED.drop(columns="age"))
    ),
    lambda rows: WANTED.assign(query=TRAIN["town"][:4].tolist()),
    lambda rows: WANTED[[*FEATURES, "age"]],
    lambda rows: pd.DataFrame(
        [TRAIN["town"][:7].tolist()] * 4, columns=[*TRAIN["town"][:6], TRAIN["town"][0]]
    ),
]


def test_explainers_that_fail(watch: Watch) -> None:
    class Broken:
        def explain(self, rows: Any) -> Any:
            return quote()

        generate_counterfactuals = explain

    for answer in [*UNREADABLE, Broken()]:
        watch.explain(answer, policy=POLICIES["lookup"])
    private = protect(Broken(), model=model, population=POPULATION, policy=POLICIES["lookup"])
    watch.run(lambda: private.generate_counterfactuals(QUERIES))
    for queries in (
        QUERIES.drop(columns="age"),
        QUERIES.set_index("town").T,
        QUERIES.head(0),
        QUERIES.to_dict(),
    ):
        watch.run(lambda queries=queries: private.explain(queries))
    assert len(watch.errors) > 13


class Asked:
    """A model that fails once it is told to, and says why."""

    is_broken = False

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        if self.is_broken:
            raise ValueError(rows.to_csv())
        return model(rows)


@pytest.mark.parametrize("guarantee", POLICIES)
def test_an_error_brings_no_local_variables_along(guarantee: str) -> None:
    """Error reporters show the local variables of every frame that an error passed."""
    asked, calls = Asked(), list[Callable[[], Any]]()
    stranger = pd.DataFrame(
        {**{name: [1] for name in FEATURES}, "town": "here", "seen": pd.Timestamp("2001-01-01")}
    )
    settings: dict[str, Any] = {
        "model": asked,
        "population": POPULATION,
        "policy": POLICIES[guarantee],
        "desired": 1,
    }
    calls += [partial(protect(answer, **settings).explain, stranger) for answer in UNREADABLE]
    calls += [partial(protect(Native(), **settings).generate_counterfactuals, stranger)]
    calls += [partial(KAnonymizer(policy=POLICIES[guarantee]).fit, POPULATION, asked, 1)]
    failed = 0
    for call in calls:
        asked.is_broken = call is calls[-1]
        try:
            call()
        except CFKError as error:
            told = traceback.TracebackException.from_exception(error, capture_locals=True)
            own = [frame for frame in told.stack if frame.filename != __file__]
            assert_clean("\n".join(map(str, [*own, *(frame.locals for frame in own)])))
            failed += 1
    assert failed > len(UNREADABLE) / 2


def raw_rows(request: ProtectionRequest) -> list[Proposal]:
    row = WANTED.iloc[0]
    parts = {name: Interval(row[name], row[name]) for name in ("age", "size", "seen")}
    return [Proposal(Region({**parts, "town": frozenset({row["town"]})}))] * len(request)


class Protecting:
    """A protector that answers with what a function returns."""

    name = "canary"

    def __init__(self, function: Callable[[ProtectionRequest], Any]) -> None:
        self.protect = function


FAILING_PROTECTORS: list[Callable[[ProtectionRequest], Any]] = [
    quote,
    raw_rows,
    lambda request: TRAIN.to_dict("records")[: len(request)],
]
FAILING_HOOKS: list[tuple[str, Callable[..., Any]]] = [
    ("detect", quote),
    ("detect", lambda frame: TRAIN["town"].tolist()[: len(frame)]),
    ("released", quote),
    ("register_protectors", quote),
    ("adapt", quote),
    ("adapt", lambda explainer: TRAIN.to_dict("records")),
]


def test_models_protectors_and_plugins_that_fail(watch: Watch) -> None:
    for function in FAILING_PROTECTORS:
        watch.explain(lambda rows: WANTED, policy=POLICIES["lookup"], method=Protecting(function))
    for name, function in FAILING_HOOKS:
        watch.explain(
            lambda rows: WANTED, policy=POLICIES["lookup"], plugins=[Hook(name, function)]
        )
    reasons = {entry.reason for result in watch.results for entry in result.withheld}
    assert reasons == {"protector_failed", "verification_failed"}
    assert len(watch.errors) == 2  # both adapters; a partition needs no registered protector
    settings: dict[str, Any] = {"policy": POLICIES["lookup"], "desired": 1}
    for model_or_goal in ({"model": Late(0)}, {"model": lambda rows: rows}, {"desired": quote}):
        watch.explain(lambda rows: WANTED, **{**settings, **model_or_goal})
    assert len(watch.errors) == 5
    watch.explain(lambda rows: WANTED, **{**settings, "model": lambda rows: rows["town"]})


def test_wrong_schemas_policies_and_tables(watch: Watch) -> None:
    fitted = KAnonymizer(policy=POLICIES["lookup"]).fit(POPULATION, model=model, desired=1)

    def fit(method: Any = "auto", **policy: Any) -> KAnonymizer:
        asked = PrivacyPolicy(**{"guarantee": "lookup", "k": 5, **policy})
        return KAnonymizer(policy=asked, method=method).fit(POPULATION, model=model, desired=1)

    def people(frame: pd.DataFrame = TRAIN, schema: Schema = SCHEMA, **options: Any) -> Population:
        return Population.from_frame(
            frame, Schema.from_frame(frame, **options) if options else schema
        )

    broken, two_ways = TRAIN.astype({"age": object}), TRAIN.astype({"town": object})
    broken.loc[3, "age"] = f"about {TRAIN['age'][3]}"
    two_ways.loc[0, "town"], two_ways.loc[1, "town"] = 730_000_019, "730000019"
    levels = TRAIN["town"].tolist()[:50]
    refused: list[Callable[[], Any]] = [
        lambda: people(broken),
        lambda: people(TRAIN.assign(size=[np.inf, *TRAIN["size"][1:]])),
        lambda: people(two_ways),
        lambda: people(TRAIN.assign(person=None)),
        lambda: people(TRAIN.head(0)),
        lambda: people(quasi_identifiers=["town"], ordinal={"town": levels}),
        lambda: people(
            quasi_identifiers=["town"], hierarchies={"town": {v: ["*"] for v in levels}}
        ),
        lambda: people(quasi_identifiers=["zip"]),
        lambda: fit(k=10**9),
        lambda: fit(k=1),
        lambda: fit(method="best"),
        lambda: fitted.transform(WANTED.drop(columns="town")),
        lambda: fitted.transform(WANTED.set_index("town").T),
        lambda: fitted.transform(WANTED.to_dict("records")),  # type: ignore[arg-type]
        lambda: fitted.transform(WANTED, factuals=QUERIES.head(1)),
    ]
    for call in refused:
        watch.run(call)
    assert len(watch.errors) == len(refused)
    for policy in ({"max_ncp": 0.0}, {"min_pureness": 1.0, "l": 12}):
        watch.run(lambda policy=policy: fit(**policy).transform(WANTED.head(1)))
    assert len(watch.results) == 2


# --- objects --------------------------------------------------------------------------------------


class Spy(ExactProtector):
    """Keeps what a protector gets and gives."""

    kept: ClassVar[list[Any]] = []

    def protect(self, request: ProtectionRequest) -> Any:
        answer = super().protect(request)
        Spy.kept += [
            request,
            request.combination_outcomes,
            request.population,
            request.policy,
            *answer,
        ]
        return answer


def test_nothing_shows_or_pickles_rows(watch: Watch) -> None:
    Spy.kept.clear()
    anonymizer = KAnonymizer(policy=POLICIES["lookup"], method=Spy())
    assert_clean(repr(anonymizer))
    result = anonymizer.fit(POPULATION, model=model, desired=1).transform(WANTED)
    assert any(isinstance(kept, Proposal) for kept in Spy.kept)
    private = protect(
        lambda rows: WANTED, model=model, population=POPULATION, policy=POLICIES["lookup"]
    )
    crowd = KAnonymizer(policy=POLICIES["catalogue"]).fit(
        POPULATION, model=model, desired="opposite"
    )
    assert len(crowd.explain(QUERIES).released) == len(QUERIES)
    state, partition, pipelines = (
        crowd.guarantee_,
        crowd.guarantee_.partition,
        (anonymizer.pipeline_, crowd.pipeline_),
    )
    assert partition is not None
    holders = [
        POPULATION, anonymizer, private, result, CounterfactualBatch.one_each(WANTED, np.ones(4, dtype=bool)),
        encode(WANTED, POPULATION.encoder), anonymizer.pipeline_.rows, anonymizer.detector_, *pipelines,
        *(pipeline.verifier for pipeline in pipelines), state, state.eligibility, partition, state.catalogue,
        partition.distance, crowd.pipeline_.protector, NearestClasses(POPULATION, POPULATION.cells),
        *(kept for kept in Spy.kept if isinstance(kept, ProtectionRequest) or type(kept).__name__ == "Oracle"),
    ]  # fmt: skip
    source = load_plugins().adapt(nearest(), AdaptContext(tuple(FEATURES)))
    others = [
        SCHEMA, anonymizer.manager_, anonymizer.model_, anonymizer.goal_, source, POPULATION.risk_profile(5), crowd,
        *SCHEMA.attributes, *POPULATION.domains.values(), Counterfactual(0, WANTED.iloc[0].to_dict()), *Spy.kept,
        anonymizer.detector_.tolerance, anonymizer.detector_.examine(WANTED.head(1)).native, anonymizer.policy,
    ]  # fmt: skip
    for thing in [*holders, *others]:
        # A result is printed as a table of what was released, and of nothing else.
        printed = [thing] if isinstance(thing, Explanations) else []
        assert_clean(repr(thing) + repr([thing]), what=f"repr of {type(thing).__name__}")
        assert_clean(
            str(thing) + f"{thing!s}", results=printed, what=f"str of {type(thing).__name__}"
        )
    for thing in holders:
        for dump in (pickle.dumps, cloudpickle.dumps):
            with pytest.raises((CFKError, AttributeError), match="pickle") as caught:
                pytest.fail(f"{type(thing).__name__} gives {len(dump(thing))} bytes")
            assert_clean(everything(caught.value))


# --- files ----------------------------------------------------------------------------------------


def answer(rows: pd.DataFrame) -> pd.DataFrame:
    """Give one answer with a value that nobody has."""
    found = WANTED.astype(object).reset_index(drop=True)
    found.loc[1, "town"] = f"{TRAIN['town'][5]}!"
    return found


def files(folder: Path, name: str = "*") -> list[Path]:
    return [path for path in folder.rglob(name) if path.is_file()]


def assert_clean_files(folder: Path, results: list[Explanations]) -> None:
    import pyarrow.parquet as pq

    from parts import lines_of

    for path in files(folder):
        assert_clean(str(path))
        assert_clean(path.read_bytes(), results, path.name)
        if path.suffix == ".parquet":
            stored = pq.ParquetFile(path)
            assert_clean(
                repr(stored.read().to_pylist()) + repr(stored.metadata.to_dict()),
                results,
                path.name,
            )
        if path.name.endswith(".jsonl.gz"):
            assert_clean(repr(lines_of(path)), results, path.name)


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_files_and_reports(
    watch: Watch, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """Logged, with a ledger, groups, lies and failures; written by hand; and told in a report of
    all that.
    """
    import mlflow

    from parts import lines_of

    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    logger = RunLogger(experiment="canaries")
    asked = {
        "model": model,
        "population": POPULATION,
        "policy": POLICIES[guarantee],
        "groups": "desk",
    }
    queries = QUERIES.assign(desk=["n", "s", None, "n"])
    with Ledger(
        tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", create=True
    ) as ledger:
        for lies in (False, True):
            private = protect(answer, ledger=ledger, **asked)
            if lies:
                anonymizer = _WRAPPED[private].anonymizer
                anonymizer.pipeline_ = replace(anonymizer.pipeline_, protector=Protecting(raw_rows))
            for _ in range(2):
                result = watch.run(lambda private=private: private.explain(queries))
                run = logger.log(result)
    (tmp_path / "ledger.db").unlink()  # it holds the regions that were released, and hashes
    first = watch.results[0]
    assert len(first.released) == 3
    with mlflow.start_run() as started:
        failed = watch.explain(answer, queries, **asked, plugins=[Hook("detect", quote)])
        assert failed.log() == started.info.run_id
        assert not failed.released
    assert watch.explain(quote, queries, **asked) is None
    (tmp_path / "result.json").write_text(first.to_json(), encoding="utf-8")
    first.to_frame().astype(str).to_parquet(tmp_path / "result.parquet")
    first.audit_frame().to_csv(tmp_path / "audit.csv")
    recounts = [path for path in files(tmp_path, "*.jsonl.gz") if path.parent.name == "recount"]
    rows = [row for path in recounts for row in lines_of(path)]
    seen = {name for row in rows for name, value in row.items() if value}
    assert {
        "group",
        "ledger",
        "k_intersection",
        "seconds",
        "ncp.town",
        "disclosure",
        "finding",
    } <= seen
    told = {path.name for path in files(tmp_path) if path.parent.name == "cfk"}
    assert told == {"policy.json", "population.json", "environment.json", "summary.json"}
    assert first.policy.sha256.encode() in (tmp_path / "mlflow.db").read_bytes()
    assert_clean_files(tmp_path, watch.results)
    assert_clean(json.dumps(mlflow.get_run(run).to_dictionary(), default=str), watch.results)
    # a report shows no value of an attribute at all, released or not
    report = PrivacyReport.of_experiment("canaries")
    assert {a["name"] for a in report.data.attributes} == set(TRAIN.columns)  # names alone
    texts = [report.to_json(), report.to_html(), report._repr_html_(), repr(report)]
    assert_clean("\n".join(texts))
    report.log()
    written = files(tmp_path, "report*")
    assert written
    for path in written:
        assert_clean(path.read_bytes(), what=path.name)
    for path in files(tmp_path, "*.jsonl.gz"):
        path.write_bytes(path.read_bytes()[:-40])
    watch.run(lambda: PrivacyReport.of_experiment("canaries"))
    assert isinstance(watch.errors[-1], CFKError)


def test_spool(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.records.shipper._shippers", {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    spool = tmp_path / "spool"
    logger = RunLogger(tracking_uri=nobody, spool=spool, timeout=0.1)
    with contextlib.closing(shipper(spool)):
        assert logger.submit(watch.explain(answer, policy=POLICIES["lookup"]))
        assert not logger.flush(1)
        assert list(spool.glob("outbox-*/*.jsonl"))
        assert_clean_files(spool, watch.results)
