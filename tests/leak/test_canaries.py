"""Canaries: every value of every training row is a sentinel, and none of them may turn up outside released entries.

What may turn up is computed from the released entries themselves: ends of intervals, members of sets, private values.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    RunLogger,
    Schema,
    hookimpl,
    protect,
)
from cfk_plugin.data.intake import Counterfactual, take_in
from cfk_plugin.data.region import Region
from cfk_plugin.errors import CFKError
from cfk_plugin.hookspecs import CounterfactualBatch, Proposal, Task
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import ExactProtector
from cfk_plugin.protection.partition import NearestCells
from cfk_plugin.records.spool import shipper
from cfk_plugin.release.explanations import Explanations

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
            "seen": pd.Timestamp("2011-07-03 05:17:43.918273") + pd.to_timedelta(order[3] * 1_234_567_891, unit="us"),
            "pay": 860_000_011 + 104_729 * order[4],
            "debt": 2_718.281_8 + 57.721_566 * order[5],
            "note": [f"CANARY-NOTE-{i:03d}-{secrets.token_hex(4)}" for i in range(N)],
        }
    )


TRAIN = table()
CUT = int(TRAIN["pay"].median()) - 17
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI, sensitive=["debt"], identifiers=["name"], subject="person")
POLICY = PrivacyPolicy(guarantee="nominal", k=5)
QUERIES = TRAIN.loc[TRAIN["pay"] <= CUT, FEATURES].head(4)
WANTED = TRAIN.loc[TRAIN["pay"] > CUT, FEATURES].head(4)


def spellings(value: Any) -> set[str]:
    if isinstance(value, pd.Timestamp):
        micro = value.value // 1000
        plain = str(value)
        return {plain, plain.replace(" ", "T"), repr(value), str(value.value), str(micro), plain.split(" ")[1]}
    if isinstance(value, float):
        return {repr(value), f"{value:.10g}", f"{value:.4f}", f"{value:,.4f}", f"{value:.6e}"}
    if isinstance(value, int):
        return {str(value), f"{value:,}", f"{value:_}", f"{value:.9e}"}
    return {str(value)}


def images(value: Any) -> set[bytes]:
    """Return how files may hold a number."""
    if isinstance(value, pd.Timestamp):
        return {struct.pack("<q", value.value), struct.pack("<q", value.value // 1000)}
    if isinstance(value, (int, float)):
        number = float(value)
        packed = {struct.pack("<d", number), struct.pack(">d", number)}
        return packed | ({struct.pack("<q", value), struct.pack(">q", value)} if isinstance(value, int) else set())
    return {str(value).encode()}


SENTINELS = [value for name in TRAIN for value in TRAIN[name].tolist()]


def released_values(results: list[Explanations]) -> set[Any]:
    """Return every value that the released entries show."""
    shown: set[Any] = set()
    for result in results:
        for entry in result:
            if isinstance(entry, GeneralizedCounterfactual):
                shown |= set(entry.released.values())
                for part in entry.region.values():
                    shown |= {part.low, part.high} if isinstance(part, Interval) else set(part)
    return shown


def leaked(is_in: Callable[[Any], bool], released: set[Any]) -> list[Any]:
    """Return the sentinels that are in something and were not released, be it rounded (DiCE rounds)."""
    numbers = np.array([value for value in released if isinstance(value, float)])
    found = [value for value in SENTINELS if value not in released and is_in(value)]
    return [v for v in found if not (isinstance(v, float) and len(numbers) and np.abs(numbers - v).min() < 1e-3)]


def assert_clean(text: str, results: list[Explanations] | None = None, what: str = "") -> None:
    """Check that a text shows no sentinel but those that were released."""
    found = leaked(lambda value: any(spelling in text for spelling in spellings(value)), released_values(results or []))
    assert not found, f"{what or text[:200]} shows {len(found)} values, for example {found[0]!r}"


def assert_clean_bytes(content: bytes, results: list[Explanations], what: str) -> None:
    found = leaked(lambda value: any(image in content for image in images(value)), released_values(results))
    assert not found, f"{what} holds {found[0]!r}"
    assert_clean(content.decode("latin-1"), results, what)
    assert_clean(content.decode("utf-16-le", errors="ignore"), results, what)


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

    def check(self) -> None:
        for error in self.errors:
            assert isinstance(error, CFKError), type(error)
            assert_clean(everything(error), self.results)
        for record in self.caplog.records:
            assert_clean(record.getMessage() + repr(record.args), self.results)
            if record.exc_info:
                assert_clean(everything(record.exc_info[1]), self.results)
        for warning in self.warned:
            assert_clean(str(warning.message) + str(warning.source), self.results)
        printed = self.capfd.readouterr()
        assert_clean(printed.out + printed.err, self.results)
        for result in self.results:
            for text in outputs(result):
                assert_clean(text, [result])


def outputs(result: Explanations) -> Iterator[str]:
    """Yield everything that a result can write."""
    yield from (repr(result), str(result), repr(result.summary()), repr(result.provenance), repr(result.findings))
    yield from (result.to_json(), result.to_json(indent=1), result.to_frame().to_csv(), result.to_frame().to_string())
    yield from (repr(result.about), repr(result.about.population), repr(result.about.environment))
    yield from (
        result.audit_frame().to_csv(),
        repr(result.audit_frame().to_dict()),
        repr(result[1:]),
        repr(result.policy),
    )
    stranger = {
        **dict.fromkeys(QUASI, 0),
        "town": "here",
        "seen": pd.Timestamp("2001-01-01"),
        "pay": 1,
        "debt": 1.0,
        "note": "x",
    }
    for entry in result:
        yield repr(entry) + str(entry) + repr(entry.to_dict()) + entry.text(stranger)
        if isinstance(entry, GeneralizedCounterfactual):
            yield repr(entry.cells()) + repr(entry.certificate) + repr(entry.region) + repr(entry.region.to_dict())
            yield repr(entry.certificate.to_dict()) + repr(entry.parts())


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


@pytest.fixture(scope="module")
def population() -> Population:
    return Population.from_frame(TRAIN, SCHEMA)


def test_sentinels_are_found() -> None:
    """The test's own eyes: each spelling of a value is seen, and a released one is let through."""
    for value in (TRAIN["age"][3], TRAIN["size"][3], TRAIN["town"][3], TRAIN["seen"][3], TRAIN["note"][3]):
        with pytest.raises(AssertionError, match="shows 1 values"):
            assert_clean(f"before {value} after")
    with pytest.raises(AssertionError, match="for example"):
        assert_clean(TRAIN.to_string())
    for name in ("age", "size", "pay", "debt"):
        with pytest.raises(AssertionError, match="holds"):
            assert_clean_bytes(b"x" + TRAIN[name].to_numpy().tobytes(), [], "a file")
    assert len(set(SENTINELS)) == TRAIN.size
    assert_clean("730000018 CANARY-TOWN 2011-07-03")


# --- results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_nearest_neighbour(watch: Watch, population: Population, method: str) -> None:
    check_nearest_neighbour(watch, population, method)


@pytest.mark.parametrize("eligible", [False, True])
def test_nearest_neighbour_with_a_partition(
    watch: Watch, population: Population, monkeypatch: pytest.MonkeyPatch, eligible: bool
) -> None:
    policy = PrivacyPolicy(k=5, anonymity_set="eligible" if eligible else "population")
    monkeypatch.setitem(globals(), "POLICY", policy)
    check_nearest_neighbour(watch, population, "auto")


def test_nearest_neighbour_with_a_catalogue(
    watch: Watch, population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "POLICY", PrivacyPolicy(k=5, guarantee="catalogue"))
    check_nearest_neighbour(watch, population, "auto")


def test_catalogue_without_an_explainer(watch: Watch, population: Population) -> None:
    policy = PrivacyPolicy(k=5, guarantee="catalogue")
    anonymizer = KAnonymizer(policy=policy).fit(population, model=model, desired="opposite")
    result = watch.run(lambda: anonymizer.explain(QUERIES))
    assert len(result.released) == len(QUERIES)
    broken = QUERIES.astype(object)
    broken.iloc[0, 0] = f"about {TRAIN['age'][7]}"
    watch.run(lambda: anonymizer.explain(broken))
    watch.run(lambda: anonymizer.explain(QUERIES.set_index("town").T))
    watch.run(lambda: anonymizer.explain(QUERIES.to_dict("records")))  # type: ignore[arg-type]
    assert len(watch.errors) == 2


def check_nearest_neighbour(watch: Watch, population: Population, method: str) -> None:
    explainer = NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)
    private = protect(explainer, model=model, population=population, policy=POLICY, method=method)
    result = watch.run(lambda: private.explain(QUERIES))
    assert set(result.findings) == {"native"}
    assert len(result.released) == len(QUERIES)
    rows = watch.run(lambda: private.explain(QUERIES).to_frame())
    assert_clean(rows.to_csv(), watch.results)
    assert_clean(repr(private) + str(private) + repr(explainer))


@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal"])
def test_candidates(watch: Watch, population: Population, guarantee: Any) -> None:
    """Of the candidates that were not chosen nothing leaves."""
    explainer = NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    private = protect(explainer, model=model, population=population, policy=policy, candidates=4)
    result = watch.run(lambda: private.explain(QUERIES))
    assert len(result.released) == len(QUERIES)
    assert set(result.findings) == {"native"}
    assert_clean(repr(private), watch.results)
    with pytest.raises(CFKError) as refused:
        protect(lambda rows: WANTED, model=model, population=population, policy=policy, candidates=4)
    assert_clean(everything(refused.value))


@pytest.mark.usefixtures("each_guarantee")
def test_function(watch: Watch, population: Population) -> None:
    class Explainer:
        rows = WANTED

        def __repr__(self) -> str:
            return str(self.rows.to_dict("records"))

        def generate_counterfactuals(self, queries: pd.DataFrame) -> pd.DataFrame:
            return WANTED

    private = protect(Explainer(), model=model, population=population, policy=POLICY)
    result = watch.run(lambda: private.explain(QUERIES))
    assert len(result.released) == len(QUERIES)
    native = private.generate_counterfactuals(QUERIES)
    assert isinstance(native, pd.DataFrame)
    assert_clean(native.to_csv() + repr(native.to_dict()) + repr(native.attrs), watch.results)
    assert_clean(repr(private) + str(private) + f"{private}")


@pytest.mark.usefixtures("each_guarantee")
def test_dice(watch: Watch, population: Population) -> None:
    dice_ml = pytest.importorskip("dice_ml")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.tree import DecisionTreeClassifier

    known = TRAIN[FEATURES].drop(columns="seen")
    schema = Schema.from_frame(known, quasi_identifiers=["age", "size", "town"])
    people = Population.from_frame(known, schema)
    numbers = FunctionTransformer(lambda rows: rows[["age", "pay"]].astype(float))
    tree = make_pipeline(numbers, DecisionTreeClassifier(max_depth=1)).fit(known, model(TRAIN))
    data = dice_ml.Data(
        dataframe=known.assign(outcome=model(TRAIN)),
        continuous_features=["age", "size", "pay", "debt"],
        outcome_name="outcome",
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=tree, backend="sklearn"), method="kdtree")
    private = protect(explainer, model=tree, population=people, policy=POLICY)
    queries = known.loc[QUERIES.index].head(2)
    options = {"total_CFs": 2, "posthoc_sparsity_algorithm": "binary"}  # the other one takes steps of 1 over the range
    result = watch.run(lambda: private.explain(queries, **options))
    assert "native" in result.findings
    assert len(result.released) == 4
    native = private.generate_counterfactuals(queries, **options)
    asked = [result, *watch.results]
    queried = {*queries.to_numpy().ravel().tolist()}
    text = native.to_json() + "".join(
        str(frame.to_dict())
        for examples in native.cf_examples_list
        for frame in (examples.final_cfs_df, examples.final_cfs_df_sparse)
        if frame is not None
    )
    allowed = released_values(asked) | queried
    assert not leaked(lambda value: any(spelling in text for spelling in spellings(value)), allowed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = pickle.dumps(native)  # the caller's own result: what it holds is what it shows
    assert not leaked(lambda value: any(image in held for image in images(value)), allowed)
    assert_clean(repr(private) + str(private))


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_binned_and_rare_private_values(watch: Watch, method: str) -> None:
    """With bins of the numbers and rare values withheld, no private value of any row leaves, released ones included."""
    bins = {
        "pay": [860_000_000, 863_000_000, 866_000_000, 869_000_000, 873_000_000],
        "debt": [2_000.0, 4_000.0, 7_000.0, 10_000.0],
    }
    schema = Schema.from_frame(
        TRAIN, quasi_identifiers=QUASI, sensitive=["debt"], identifiers=["name"], subject="person", bins=bins
    )
    people = Population.from_frame(TRAIN, schema)
    policy = PrivacyPolicy(k=5, guarantee="nominal", private_values="bins", rare_values="withhold")
    explainer = NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)
    private = protect(explainer, model=model, population=people, policy=policy, method=method)
    result = watch.run(lambda: private.explain(QUERIES))
    assert [set(entry.released) for entry in result.released] == [{"pay", "debt"}] * len(QUERIES)
    assert {entry.withheld for entry in result.released} == {("note",)}
    own = {value for name in ("pay", "debt", "note") for value in TRAIN[name].tolist()}
    assert not own & released_values([result])
    native = private(QUERIES)
    assert isinstance(native, Explanations)


@pytest.mark.usefixtures("each_guarantee")
def test_one_answer_bad_and_one_undesired(watch: Watch, population: Population) -> None:
    answer = WANTED.astype(object).reset_index(drop=True)
    answer.loc[0, "town"] = f"{TRAIN['town'][5]}-{TRAIN['town'][6]}"
    answer.loc[1, "age"] = f"about {TRAIN['age'][7]}"
    answer.loc[2, FEATURES] = TRAIN.loc[QUERIES.index[0], FEATURES].tolist()
    private = protect(lambda rows: answer, model=model, population=population, policy=POLICY, desired=1)
    result = watch.run(lambda: private.explain(QUERIES))
    assert [getattr(e, "reason", None) for e in result] == ["unknown_category", "invalid_value", "not_desired", None]


# --- failures --------------------------------------------------------------------------------------------------


def quote(*_: Any, **__: Any) -> Any:
    """Fail as carelessly as code can: rows in the text, the arguments, the notes and the exceptions before."""
    try:
        raise KeyError(TRAIN.to_dict("records"))
    except KeyError as first:
        error = ValueError(f"cannot use {TRAIN.to_string()}", TRAIN["town"].tolist())
        error.add_note(str(TRAIN["age"].tolist()))
        raise error from first


class Late:
    """A model that fails after some calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def predict(self, rows: pd.DataFrame) -> Any:
        self.left -= 1
        return model(rows) if self.left >= 0 else quote()


@pytest.mark.usefixtures("each_guarantee")
def test_models_that_fail(watch: Watch, population: Population) -> None:
    sound = Late(10**6)
    KAnonymizer(policy=POLICY).fit(population, model=sound, desired="opposite").transform(WANTED, factuals=QUERIES)
    needed = 10**6 - sound.left
    for calls in {*range(3), *range(needed - 3, needed)}:
        for desired in (1, "opposite"):
            watch.run(
                lambda calls=calls, desired=desired: (
                    KAnonymizer(policy=POLICY)
                    .fit(population, model=Late(calls), desired=desired)
                    .transform(WANTED, factuals=QUERIES)
                )
            )
            watch.run(
                lambda calls=calls, desired=desired: protect(
                    lambda rows: WANTED, model=Late(calls), population=population, policy=POLICY, desired=desired
                ).explain(QUERIES)
            )
    watch.run(lambda: KAnonymizer(policy=POLICY).fit(population, model=model, desired=quote))
    watch.run(
        lambda: KAnonymizer(policy=POLICY).fit(population, model=lambda rows: rows["town"], desired=1).transform(WANTED)
    )
    watch.run(lambda: KAnonymizer(policy=POLICY).fit(population, model=lambda rows: rows, desired=1))
    assert watch.errors
    assert any(e.reason == "model_failed" for r in watch.results for e in r.suppressed)


@pytest.mark.parametrize(("guarantee", "desired"), [("nominal", "opposite"), ("reciprocal", 1)])
def test_models_that_fail_while_choosing(watch: Watch, population: Population, guarantee: Any, desired: Any) -> None:
    """Wherever the model fails while a candidate is chosen or released, every entry is withheld, and none is raw."""
    explainer = NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)
    failing = Late(10**6)
    private = protect(
        explainer,
        model=failing,
        population=population,
        policy=PrivacyPolicy(k=5, guarantee=guarantee),
        desired=desired,
        candidates=4,
    )
    failed = 0
    for calls in range(40):
        failing.left = calls
        result = watch.run(lambda: private.explain(QUERIES))
        assert len(result) == len(QUERIES)
        if not any(entry.reason == "model_failed" for entry in result.suppressed):
            break
        assert not result.released
        failed += 1
    assert len(result.released) == len(QUERIES)
    assert failed > 2


@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal"])
def test_generators_that_fail_to_name_candidates(watch: Watch, population: Population, guarantee: Any) -> None:
    class Source:
        name, instance_based, methods = "quoting", True, {}

        def __init__(self, answer: Callable[..., Any]) -> None:
            self.candidates, self.generate = answer, answer

        def restore(self, native: Any, explanations: Any) -> Any: ...

    class Adapter:
        @hookimpl
        def cfk_adapt(self, explainer: Any) -> Any:
            return Source(explainer)

    def batch(frame: pd.DataFrame, query: Any) -> Callable[..., Any]:
        return lambda queries, m: CounterfactualBatch(frame, np.arange(len(frame)), np.array(query))

    answers = [quote, lambda queries, m: WANTED, batch(WANTED, [0, 1, 2, 9]), batch(WANTED[["town"]], [0, 0, 1, 1])]
    answers += [batch(WANTED.assign(town=[TRAIN.to_dict()] * 4), [0, 0, 1, 1]), batch(WANTED, [0, 0, 0, 0])]
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    for answer in answers:
        private = protect(
            answer, model=model, population=population, policy=policy, candidates=2, plugins=[Adapter()], desired=1
        )
        watch.run(lambda private=private: private.explain(QUERIES))
    assert len(watch.errors) == 3
    assert [len(result.released) for result in watch.results] == [0, 0, 1]
    assert [len(result) for result in watch.results] == [len(QUERIES)] * 3


@pytest.mark.usefixtures("each_guarantee")
def test_explainers_that_fail(watch: Watch, population: Population) -> None:
    class Broken:
        def explain(self, rows: Any) -> Any:
            return quote()

        generate_counterfactuals = explain

    turned = WANTED.set_index("town").T
    answers: list[Any] = [quote, lambda rows: turned, lambda rows: str(TRAIN.to_dict()), lambda rows: TRAIN.to_dict()]
    answers += [lambda rows: TRAIN, lambda rows: WANTED.head(2).reset_index(drop=True).rename(index=lambda i: i + 900)]
    answers += [
        lambda rows: TRAIN[["town"]],
        lambda rows: WANTED.to_numpy()[:, :3],
        lambda rows: [{TRAIN["town"][0]: 1}, {"a": 1}],
    ]
    answers += [lambda rows: WANTED.assign(query=TRAIN["town"][:4].tolist()), lambda rows: WANTED[[*FEATURES, "age"]]]
    answers += [
        lambda rows: pd.DataFrame([TRAIN["town"][:7].tolist()] * 4, columns=[*TRAIN["town"][:6], TRAIN["town"][0]])
    ]
    for answer in answers:
        private = protect(answer, model=model, population=population, policy=POLICY)
        watch.run(lambda private=private: private.explain(QUERIES))
    private = protect(Broken(), model=model, population=population, policy=POLICY)
    watch.run(lambda: private.explain(QUERIES))
    watch.run(lambda: private.generate_counterfactuals(QUERIES))
    for queries in (QUERIES.drop(columns="age"), QUERIES.set_index("town").T, QUERIES.head(0), QUERIES.to_dict()):
        watch.run(lambda queries=queries: private.explain(queries))
    assert len(watch.errors) > 8


def test_protectors_and_plugins_that_fail(watch: Watch, population: Population, each_guarantee: str) -> None:
    class Broken:
        name = "broken"

        def protect(self, task: Task) -> Any:
            return quote()

    class Raw(Broken):
        def protect(self, task: Task) -> Any:
            row = WANTED.iloc[0]
            parts = {name: Interval(row[name], row[name]) for name in ("age", "size", "seen")}
            return [Proposal(Region({**parts, "town": frozenset({row["town"]})}))] * len(task)

    class Hooks:
        def __init__(self, **hooks: Callable[..., Any]) -> None:
            for name, function in hooks.items():
                setattr(self, name, hookimpl(function))

    def everywhere(**settings: Any) -> None:
        watch.run(
            lambda: KAnonymizer(policy=POLICY, **settings).fit(population, model=model, desired=1).transform(WANTED)
        )
        watch.run(
            lambda: protect(lambda rows: WANTED, model=model, population=population, policy=POLICY, **settings).explain(
                QUERIES
            )
        )

    if each_guarantee == "nominal":
        everywhere(method=Broken())
        everywhere(method=Raw())
    everywhere(plugins=[Hooks(cfk_protect=lambda task: quote(task))])  # noqa: PLW0108 - a hook's argument goes by its name
    everywhere(plugins=[Hooks(cfk_protect=lambda task: Raw().protect(task))])
    everywhere(plugins=[Hooks(cfk_protect=lambda task: TRAIN.to_dict("records")[: len(task)])])
    everywhere(plugins=[Hooks(cfk_detect=lambda frame: quote(frame))])  # noqa: PLW0108 - a hook's argument goes by its name
    everywhere(plugins=[Hooks(cfk_detect=lambda frame: TRAIN["town"].tolist()[: len(frame)])])
    everywhere(plugins=[Hooks(cfk_released=lambda record: quote(record))])  # noqa: PLW0108 - a hook's argument goes by its name
    everywhere(plugins=[Hooks(cfk_register_protectors=lambda: {"a": quote()})])
    everywhere(plugins=[Hooks(cfk_adapt=lambda explainer: quote(explainer))])  # noqa: PLW0108 - a hook's argument goes by its name
    everywhere(plugins=[Hooks(cfk_adapt=lambda explainer: TRAIN.to_dict("records"))])
    suppressed = [entry.reason for result in watch.results for entry in result.suppressed]
    assert {"protector_failed", "verification_failed"} <= set(suppressed)
    assert len(watch.errors) >= (3 if each_guarantee == "nominal" else 2)  # a partition needs no registered protector


def test_wrong_schemas_policies_and_tables(watch: Watch, population: Population) -> None:
    def fit(policy: PrivacyPolicy = POLICY, **settings: Any) -> KAnonymizer:
        return KAnonymizer(policy=policy, **settings).fit(population, model=model, desired=1)

    broken = TRAIN.astype({"age": object})
    broken.loc[3, "age"] = f"about {TRAIN['age'][3]}"
    infinite = TRAIN.assign(size=[np.inf, *TRAIN["size"][1:]])
    levels = TRAIN["town"].tolist()[:50]
    two_ways = TRAIN.astype({"town": object})
    two_ways.loc[0, "town"], two_ways.loc[1, "town"] = 730_000_019, "730000019"
    calls: list[Callable[[], Any]] = [
        lambda: Population.from_frame(broken, SCHEMA),
        lambda: Population.from_frame(infinite, SCHEMA),
        lambda: Population.from_frame(two_ways, SCHEMA),
        lambda: Population.from_frame(TRAIN.assign(person=None), SCHEMA),
        lambda: Population.from_frame(TRAIN.head(0), SCHEMA),
        lambda: Population.from_frame(
            TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["town"], ordinal={"town": levels})
        ),
        lambda: Population.from_frame(
            TRAIN,
            Schema.from_frame(TRAIN, quasi_identifiers=["town"], hierarchies={"town": {v: ["*"] for v in levels}}),
        ),
        lambda: Schema.from_frame(TRAIN, quasi_identifiers=["zip"]),
        lambda: fit(PrivacyPolicy(guarantee="nominal", k=10**9)),
        lambda: fit(PrivacyPolicy(guarantee="nominal", k=1)),
        lambda: fit(method="best"),
        lambda: fit(PrivacyPolicy(guarantee="nominal", k=5, max_ncp=0.0, on_infeasible="raise")).transform(WANTED),
        lambda: fit(PrivacyPolicy(guarantee="nominal", k=5, max_ncp=0.0)).transform(WANTED),
        lambda: fit(PrivacyPolicy(guarantee="nominal", k=5, min_pureness=1.0, l=12)).transform(WANTED),
        lambda: fit().transform(WANTED.drop(columns="town")),
        lambda: fit().transform(WANTED.set_index("town").T),
        lambda: fit().transform(WANTED.to_dict("records")),  # type: ignore[arg-type]
        lambda: fit().transform(WANTED, factuals=QUERIES.head(1)),
    ]
    for call in calls:
        watch.run(call)
    assert len(watch.errors) >= 14


# --- objects ---------------------------------------------------------------------------------------------------


class Spy(ExactProtector):
    """Keeps what a protector gets and gives."""

    kept: ClassVar[list[Any]] = []

    def protect(self, task: Task) -> Any:
        answer = super().protect(task)
        Spy.kept += [task, task.oracle, task.population, task.policy, *answer]
        return answer


def test_nothing_shows_or_pickles_rows(watch: Watch, population: Population) -> None:
    Spy.kept.clear()
    anonymizer = KAnonymizer(policy=POLICY, method=Spy())
    assert_clean(repr(anonymizer))
    anonymizer.fit(population, model=model, desired=1)
    result = anonymizer.transform(WANTED)
    private = protect(lambda rows: WANTED, model=model, population=population, policy=POLICY)
    private.explain(QUERIES)
    batch = CounterfactualBatch.one_each(WANTED, np.ones(4, dtype=bool))
    source = load_plugins().adapt(NearestUnlikeNeighbour(TRAIN, model, features=FEATURES), _context())
    holders = [
        population, anonymizer, private, result, batch, take_in(WANTED, population.encoder), anonymizer.pipeline_.rows,
        anonymizer.detector_, anonymizer.pipeline_, anonymizer.pipeline_.verifier,
        *(kept for kept in Spy.kept if isinstance(kept, Task) or type(kept).__name__ == "Oracle"),
    ]  # fmt: skip
    others = [
        SCHEMA, anonymizer.manager_, anonymizer.model_, anonymizer.goal_, source, population.risk_profile(5),
        *SCHEMA.attributes, *population.domains.values(), Counterfactual(0, WANTED.iloc[0].to_dict()), *Spy.kept,
        anonymizer.detector_.tolerance, anonymizer.detector_.examine(WANTED.head(1)).native, POLICY,
    ]  # fmt: skip
    assert any(isinstance(kept, Proposal) for kept in Spy.kept)
    for thing in [*holders, *others]:
        for text in (repr(thing), str(thing), f"{thing!s}", repr([thing])):
            assert_clean(text, what=f"repr of {type(thing).__name__}")
    import cloudpickle

    for thing in holders:
        for dump in (pickle.dumps, cloudpickle.dumps):
            with pytest.raises((CFKError, AttributeError), match="pickle") as caught:
                pytest.fail(f"{type(thing).__name__} gives {len(dump(thing))} bytes")
            assert_clean(everything(caught.value))


def test_nothing_of_a_partition_or_a_catalogue_shows_or_pickles_rows(watch: Watch, population: Population) -> None:
    import cloudpickle

    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="catalogue"))
    anonymizer.fit(population, model=model, desired="opposite")
    result = anonymizer.explain(QUERIES)
    state, pipeline, partition = anonymizer.guarantee_, anonymizer.pipeline_, anonymizer.guarantee_.partition
    assert partition is not None
    assert len(result.released) == len(QUERIES)
    holders = [
        state, state.sides, partition, state.catalogue, partition.distance, pipeline.protector, pipeline,
        pipeline.verifier, NearestCells(population, population.cells),
    ]  # fmt: skip
    for thing in [*holders, anonymizer]:
        for text in (repr(thing), str(thing), f"{thing!s}", repr([thing])):
            assert_clean(text, what=f"repr of {type(thing).__name__}")
    for thing in holders:
        for dump in (pickle.dumps, cloudpickle.dumps):
            with pytest.raises((CFKError, AttributeError), match="pickle") as caught:
                pytest.fail(f"{type(thing).__name__} gives {len(dump(thing))} bytes")
            assert_clean(everything(caught.value))


def _context() -> Any:
    from cfk_plugin.hookspecs import AdaptContext

    return AdaptContext(tuple(FEATURES))


# --- files -----------------------------------------------------------------------------------------------------


def explained(watch: Watch, population: Population) -> Explanations:
    """Return released, suppressed and failed entries together."""
    answer = WANTED.astype(object).reset_index(drop=True)
    answer.loc[1, "town"] = f"{TRAIN['town'][5]}!"
    private = protect(lambda rows: answer, model=model, population=population, policy=POLICY)
    result: Explanations = watch.run(lambda: private.explain(QUERIES))
    assert len(result.released) == 3
    return result


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def assert_clean_files(folder: Path, results: list[Explanations]) -> None:
    import pyarrow.parquet as pq

    for path in files(folder):
        assert_clean(str(path), [])
        assert_clean_bytes(path.read_bytes(), results, path.name)
        if path.suffix == ".parquet":
            stored = pq.ParquetFile(path)
            assert_clean(repr(stored.read().to_pylist()) + repr(stored.metadata.to_dict()), results, path.name)


@pytest.mark.usefixtures("each_guarantee")
def test_counts_for_the_data_holder(
    watch: Watch, population: Population, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    def lies(task: Task) -> list[Proposal]:
        row = WANTED.iloc[0]
        parts = {name: Interval(row[name], row[name]) for name in ("age", "size", "seen")}
        return [Proposal(Region({**parts, "town": frozenset({row["town"]})}))] * len(task)

    class Liar:
        cfk_protect = staticmethod(hookimpl(lies))

    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    settings = {"model": model, "population": population, "policy": POLICY, "groups": "desk"}
    answer = WANTED.astype(object).reset_index(drop=True)
    answer.loc[1, "town"] = f"{TRAIN['town'][5]}!"
    with Ledger(tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", create=True) as ledger:
        for plugins in ([], [Liar()]):
            private = protect(lambda rows: answer, plugins=plugins, ledger=ledger, **settings)
            for queries in (QUERIES.assign(desk=["n", "s", None, "n"]), QUERIES.assign(desk="n")):
                watch.run(lambda private=private, queries=queries: private.explain(queries)).log(run_name="a")
    tables = [path for path in files(tmp_path) if path.parent.name == "recount"]
    seen = {name for path in tables for name, column in pq.read_table(path).to_pydict().items() if any(column)}
    assert {"group", "ledger", "k_intersection", "seconds", "ncp.town", "disclosure", "finding"} <= seen
    told = {path.name for path in files(tmp_path) if path.parent.name == "cfk"}
    assert told == {"policy.json", "population.json", "environment.json"}
    (tmp_path / "ledger.db").unlink()  # it holds the regions that were released, and hashes
    assert_clean_files(tmp_path, watch.results)


def test_mlflow_store_and_artifacts(watch: Watch, population: Population, mlflow_store: str, tmp_path: Path) -> None:
    import mlflow

    result = explained(watch, population)
    failed = protect(quote, model=model, population=population, policy=POLICY)
    with mlflow.start_run() as run:
        assert result.log() == run.info.run_id
    with mlflow.start_run():
        watch.run(lambda: failed.explain(QUERIES)).log()
    assert any(path.suffix == ".parquet" for path in files(tmp_path))
    assert (tmp_path / "mlflow.db").stat().st_size > 0
    assert_clean_files(tmp_path, watch.results)
    logged = "".join(path.read_bytes().decode("latin-1") for path in files(tmp_path) if path.suffix in (".db", ".json"))
    assert result.policy.sha256 in logged
    assert_clean(json.dumps(mlflow.get_run(run.info.run_id).to_dictionary(), default=str), watch.results)


@pytest.mark.parametrize("edition", ["internal", "external"])
def test_reports(watch: Watch, population: Population, mlflow_store: str, tmp_path: Path, edition: Any) -> None:
    """A report shows no value of an attribute at all, released or not."""
    explained(watch, population).log(RunLogger(experiment="canaries"))
    failed = protect(quote, model=model, population=population, policy=POLICY)
    watch.run(lambda: failed.explain(QUERIES)).log(RunLogger(experiment="canaries"))
    report = PrivacyReport.of_experiment("canaries", edition=edition)
    assert {a["name"] for a in report.data.attributes} == set(TRAIN.columns)  # names alone
    texts = [report.to_json(), report.to_html(), report.to_html(print_edition=True), report.to_markdown()]
    texts += [report.to_csv(), report.to_junit(), report.model_card(), report._repr_html_(), repr(report)]
    for text in texts:
        assert_clean(text)
    report.log()
    for path in files(tmp_path):
        if path.name.startswith("report"):
            assert_clean_bytes(path.read_bytes(), [], path.name)
    for path in files(tmp_path):
        if path.suffix == ".parquet":
            path.write_bytes(path.read_bytes()[:-40])
    watch.run(lambda: PrivacyReport.of_experiment("canaries", edition=edition))
    assert isinstance(watch.errors[-1], CFKError)


def test_spool(watch: Watch, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.records.spool._shippers", {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    spool = tmp_path / "spool"
    logger = RunLogger(tracking_uri=nobody, spool=spool, timeout=0.5)
    with contextlib.closing(shipper(spool)):
        assert logger.submit(explained(watch, population))
        assert not logger.flush(20)
        assert (spool / "spool.db").read_bytes()
        assert_clean_files(spool, watch.results)


@pytest.mark.usefixtures("each_guarantee")
def test_written_results(watch: Watch, population: Population, tmp_path: Path) -> None:
    result = explained(watch, population)
    (tmp_path / "result.json").write_text(result.to_json(), encoding="utf-8")
    result.to_frame().to_csv(tmp_path / "result.csv")
    result.to_frame().astype(str).to_parquet(tmp_path / "result.parquet")
    result.audit_frame().to_csv(tmp_path / "audit.csv")
    assert_clean_files(tmp_path, watch.results)
