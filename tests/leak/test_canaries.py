"""Canaries: every value of every training row is a sentinel, and none of them may turn up outside
released entries.

What may turn up is computed from the released entries themselves: ends of intervals, members of
sets, private values.
"""

from __future__ import annotations

import json
import logging
import pickle
import secrets
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Region,
    Schema,
    hookimpl,
    protect,
)
from cfk_plugin.errors import CFKError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.tracking.logger import RunLogger

N = 60
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
LOOKUP = PrivacyPolicy(k=5, guarantee="lookup")
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
    """Return the sentinels that a text or a file has in any form: all ends are looked up at once."""
    data = bytes(8) + (content.encode(errors="replace") if isinstance(content, str) else content)
    runs = [
        np.frombuffer(data[i : len(data) - (len(data) - i) % 8], dtype="<u8") >> 8 for i in range(8)
    ]
    at = np.flatnonzero(np.isin(ENDS, np.concatenate(runs)))
    return {IMAGES[i][1] for i in at if IMAGES[i][0] in data}


def released_values(results: Sequence[Explanations]) -> set[Any]:
    """Return every value that bounds a region of the released entries, or is a private one."""
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
    """Check that something has no sentinel but released ones, which DiCE may have rounded."""
    shown = released_values(results) | set(but)
    numbers = np.array([value for value in shown if isinstance(value, float)] or [np.inf])
    secret = []
    for value in sentinels_in(content) - shown:
        if not isinstance(value, float) or np.abs(numbers - value).min() >= 1e-3:
            secret.append(value)
    assert not secret, f"{what or content[:200]!r} shows {len(secret)} values, as {secret[0]!r}"


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > CUT).to_numpy().astype(int)


class Watch:
    """Collects what leaves by the side doors."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self.caplog, self.capfd = caplog, capfd
        self.results: list[Explanations] = []
        self.errors: list[BaseException] = []
        self.warned: list[warnings.WarningMessage] = []
        self.but: set[Any] = set()  # values that answers may show besides: the queries' own

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
        said = [str(error) for error in self.errors]
        for record in self.caplog.records:
            said.append(record.getMessage() + repr(record.args))
            assert record.exc_info is None
        said += [str(warning.message) + str(warning.source) for warning in self.warned]
        assert_clean("\n".join([*said, *self.capfd.readouterr()]), self.results)
        for result in self.results:
            assert_clean("\n".join(outputs(result)), [result], but=self.but)


def outputs(result: Explanations) -> Iterator[str]:
    """Yield everything that a result can write."""
    frame = result.to_frame()
    audit = result.audit_frame()
    about = result.about
    yield from map(repr, (result, result.summary(), result.provenance, result.findings))
    yield from map(repr, (result.policy, about, about.population, about.environment))
    yield from (str(result), result.to_json(), result._repr_html_(), result.policy._repr_html_())
    yield from (frame.to_csv(), frame.to_string(), audit.to_csv(), repr(audit.to_dict()))
    stranger = {**dict.fromkeys(QUASI, 0), "town": "here", "seen": pd.Timestamp("2001-01-01")}
    stranger |= {"pay": 1, "debt": 1.0, "note": "x"}
    for entry in result:
        yield from (repr(entry), str(entry), repr(entry.to_dict()), entry._repr_html_())
        yield entry.text(stranger)
        if isinstance(entry, GeneralizedCounterfactual):
            yield from map(repr, (entry.cells(), entry.region, entry.region.to_dict()))
            yield from map(repr, (entry.parts(), entry.recount, entry.recount.to_dict()))
            certificate = entry.certificate
            yield from (repr(certificate), repr(certificate.to_dict()), certificate._repr_html_())


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Watch]:
    watching = Watch(caplog, capfd)
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        watching.warned = warned
        yield watching
    watching.check()


def test_sentinels_are_found() -> None:
    """Each spelling of a value is seen, and a released one is let through."""
    for name in ("age", "size", "town", "seen", "pay", "debt", "note"):
        value = TRAIN[name].tolist()[3]
        for image in images(value):
            assert sentinels_in(b"before " + image + b" after") == {value}
        with pytest.raises(AssertionError, match="shows 1 values"):
            assert_clean(f"before {value} after")
        assert_clean(f"before {value} after", but=[value])
    for name in ("age", "size", "pay", "debt"):
        assert len(sentinels_in(b"x" + TRAIN[name].to_numpy().tobytes())) == N
    assert len(set(SENTINELS)) == TRAIN.size
    assert min(len(image) for image, _ in IMAGES) >= 7
    assert_clean("730000018 CANARY-TOWN 2011-07-03")


# --- results --------------------------------------------------------------------------------------


def nearest() -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(TRAIN, model, features=FEATURES)


def test_results_show_nothing_else(watch: Watch) -> None:
    """Of native counterfactuals, and of some that are withheld."""
    private = protect(nearest(), model=model, population=POPULATION, policy=LOOKUP)
    result = watch.run(lambda: private.explain(QUERIES))
    assert set(result.findings) == {"native"}
    assert len(result.released) == len(QUERIES)
    anonymizer = KAnonymizer(policy=LOOKUP).fit(POPULATION, model, 1)
    for shown in (private, anonymizer, POPULATION, SCHEMA, POPULATION.risk_profile()):
        assert_clean(repr(shown) + str(shown) + shown._repr_html_())
    answers = WANTED.astype(object).reset_index(drop=True)
    answers.loc[0, "town"] = f"{TRAIN['town'][5]}-{TRAIN['town'][6]}"
    answers.loc[1, "age"] = f"about {TRAIN['age'][7]}"
    answers.loc[2, FEATURES] = TRAIN.loc[QUERIES.index[0], FEATURES].tolist()
    result = watch.explain(lambda rows: answers, policy=LOOKUP, desired=1)
    reasons = [getattr(entry, "reason", None) for entry in result]
    assert reasons == ["unknown_category", "invalid_value", "not_desired", None]


def test_catalogue_shows_nothing_else(watch: Watch) -> None:
    """Answers and entries; answers may repeat the values of the query."""
    known = TRAIN.drop(columns="note")  # free text has no value that could be shared
    people = Population.from_frame(known, Schema.from_frame(known, **OPTIONS))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(people, model, 1)
    result = watch.run(lambda: anonymizer.explain(QUERIES.drop(columns="note")))
    watch.but = set(QUERIES.to_numpy().ravel().tolist())
    assert result.released
    assert_clean(repr(anonymizer) + anonymizer._repr_html_())
    watch.run(anonymizer.published)


def test_dice_shows_nothing_else(watch: Watch) -> None:
    """Neither its own result, nor what that contains when it is pickled."""
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
    with warnings.catch_warnings(action="ignore"):
        contents = [native.to_json(), pickle.dumps(native), pickle.dumps(vars(native))]
    for content in contents:
        assert_clean(content, watch.results, but=queries.to_numpy().ravel().tolist())


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


class Hook:
    """A plugin with one hook."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


UNREADABLE: list[Any] = [
    quote,
    lambda rows: WANTED.set_index("town").T,
    lambda rows: str(TRAIN.to_dict()),
    lambda rows: WANTED.assign(query=TRAIN["town"][:4].tolist()),
    lambda rows: pd.DataFrame(
        [TRAIN["town"][:7].tolist()] * 4, columns=[*TRAIN["town"][:6], TRAIN["town"][0]]
    ),
]


def test_failing_explainers_show_nothing(watch: Watch) -> None:
    """Whatever they return or raise, and whatever is asked."""
    for answer in UNREADABLE:
        watch.explain(answer, policy=LOOKUP)
    for queries in (QUERIES.set_index("town").T, QUERIES.to_dict()):
        watch.explain(quote, queries, policy=LOOKUP)
    assert len(watch.errors) == len(UNREADABLE) + 2


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


def test_failing_plugins_show_nothing(watch: Watch) -> None:
    """Protectors, other plugins, models and goals."""
    for function in FAILING_PROTECTORS:
        watch.explain(lambda rows: WANTED, policy=LOOKUP, method=Protecting(function))
    for name, function in FAILING_HOOKS:
        watch.explain(lambda rows: WANTED, policy=LOOKUP, plugins=[Hook(name, function)])
    reasons = {entry.reason for result in watch.results for entry in result.withheld}
    assert reasons == {"protector_failed", "verification_failed"}
    assert len(watch.errors) == 3  # registering protectors, and both adapters
    settings: dict[str, Any] = {"policy": LOOKUP, "desired": 1}
    for model_or_goal in ({"model": Late(0)}, {"model": lambda rows: rows}, {"desired": quote}):
        watch.explain(lambda rows: WANTED, **{**settings, **model_or_goal})
    assert len(watch.errors) == 6
    watch.explain(lambda rows: WANTED, **{**settings, "model": lambda rows: rows["town"]})


# --- files ----------------------------------------------------------------------------------------


def answer(rows: pd.DataFrame) -> pd.DataFrame:
    """Give one answer with a value that nobody has."""
    found = WANTED.astype(object).reset_index(drop=True)
    found.loc[1, "town"] = f"{TRAIN['town'][5]}!"
    return found


def assert_clean_files(folder: Path, results: list[Explanations]) -> None:
    import pyarrow.parquet as pq

    for path in filter(Path.is_file, folder.rglob("*")):
        assert_clean(str(path))
        assert_clean(path.read_bytes(), results, path.name)
        if path.suffix == ".parquet":
            stored = pq.ParquetFile(path)
            assert_clean(
                repr(stored.read().to_pylist()) + repr(stored.metadata.to_dict()),
                results,
                path.name,
            )


def test_files_show_nothing_else(watch: Watch, mlflow_store: str, tmp_path: Path) -> None:
    """Logged, with groups and failures; written by hand; and told in a report of all that."""
    import mlflow

    logger = RunLogger(experiment="canaries")
    settings = {"model": model, "population": POPULATION, "policy": LOOKUP, "groups": "desk"}
    queries = QUERIES.assign(desk=["n", "s", None, "n"])
    first = watch.explain(answer, queries, **settings)
    run = logger.log(first)
    assert len(first.released) == 3
    lying = watch.explain(answer, queries, **settings, method=Protecting(raw_rows))
    failed = watch.explain(answer, queries, **settings, plugins=[Hook("detect", quote)])
    for result in (lying, failed):
        assert not result.released
        logger.log(result)
    (tmp_path / "result.json").write_text(first.to_json(), encoding="utf-8")
    first.to_frame().astype(str).to_parquet(tmp_path / "result.parquet")
    first.audit_frame().to_csv(tmp_path / "audit.csv")
    assert_clean_files(tmp_path, watch.results)
    assert_clean(json.dumps(mlflow.get_run(run).to_dictionary(), default=str), watch.results)
    # a report shows no value of an attribute at all, released or not
    report = PrivacyReport.of_experiment("canaries")
    assert {attribute["name"] for attribute in report.data.attributes} == set(TRAIN.columns)
    for text in (report.to_json(), report.to_html(), report._repr_html_(), repr(report)):
        assert_clean(text)
