"""What stands behind both servers, asked in Python: the handler, logged models, and how `cfk serve`
starts.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin import KAnonymizer, Ledger, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError, LedgerError, PolicyError
from cfk_plugin.release.results import Withheld
from cfk_plugin.serving import handler
from model_server import K, NearestInAge, accepts, logged, patients, population, serving, store

PEOPLE = patients()
GOOD: dict[str, Any] = {"age": 40, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}

# --- what cannot be read or written ---------------------------------------------------------------


def table() -> pd.DataFrame:
    """The patients with dates and fractions, public and private."""
    days = pd.Timestamp("2019-01-01") + pd.to_timedelta(range(len(PEOPLE)), unit="D")
    since = pd.to_datetime(["2020-01-01", "2021-05-05", "2022-07-01"] * (len(PEOPLE) // 3))
    height = [170 + i % 10 + i / 100 for i in range(len(PEOPLE))]
    return PEOPLE.assign(
        since=since, height=height, joined=days, rate=[i / 7 for i in range(len(PEOPLE))]
    )


TABLE = table()
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=["age", "town", "since", "height"])
WHOLE = {**GOOD, "since": "2021-05-05", "height": 171.5, "joined": "2019-02-03", "rate": 5.1}

REFUSED: dict[str, list[Any]] = {
    "age": [
        1e308,
        10**30,
        10**400,
        2**63,
        "1e400",
        "x",
        "",
        "1_0",
        "0x1A",
        [1],
        {},
        None,
        30.5,
        "2020-01-01",
        "nan",
    ],
    "height": [1e308, -1.79e308, 10**400, "1_0", "nan", [], "\ud800"],
    "town": ["\ud800", 5, True, "ghent", [], ""],
    "illness": ["\ud800", "a\udfff", float("inf"), 1e308, None, {"a": 1}],
    "since": ["2020-13-45", "20200101", 1_577_836_800, True, "yesterday", "\ud800", []],
    "joined": ["\ud800", 5, 1e308, "2019-02-03x", ""],
    "rate": ["\ud800", 1e308, "Infinity", {}, "2020-01-01"],
    "pay": [10**400, 2**63, -(2**63) - 1, 1e300, "one"],
}
# The dates of pandas 2 begin in 1677.
EARLY = "1700-01-01" if TABLE["joined"].dtype == "datetime64[ns]" else "0001-01-01"
CONFORMED: dict[str, list[Any]] = {
    "age": ["0", "40", True, 40.0, -5, 10**9],
    "height": ["0", "171.5", True, 1e15, 10**15],
    "illness": [5, True, 5.5, "", "Ω", "\x00", "𝔘"],
    "since": ["2020-01-01T00:00:00Z", "2020-01-01T12:00:00+05:00", "2020-01-01T00:00:00.123456789"],
    "joined": [EARLY, "2019-02-03 10:00"],
    "rate": ["5", True, -1e15],
    "pay": ["5", True, 2**62],
}


def with_each(values: dict[str, list[Any]]) -> list[list[dict[str, Any]]]:
    """Return two rows for each value: as they should be, and with the value."""
    return [[WHOLE, {**WHOLE, name: value}] for name, some in values.items() for value in some]


class Book:
    """A handler over a real ledger, and what is on record in it."""

    def __init__(self, folder: Path, *, sealed: bool, **policy: Any) -> None:
        of = PrivacyPolicy(**{"guarantee": "reciprocal", "k": K, **policy})
        self.people = Population.from_frame(TABLE, SCHEMA)
        if sealed:
            KAnonymizer(policy=of).fit(self.people, model=accepts, desired=1).seal(
                folder / "population.cfk"
            )
            self.people = Population.open(folder / "population.cfk")
        self.path = folder / "ledger.db"
        ledger = Ledger(self.path, key=b"a key of this test, of 32 bytes.", create=True)
        nearest = NearestInAge(TABLE)

        def explain(queries: pd.DataFrame) -> pd.DataFrame:
            """Keep private values of the query, as most explainers do with what needs no change."""
            answer = nearest(queries).reset_index(drop=True)
            kept = ("illness", "joined", "rate") if sealed else ()
            return answer.assign(**{name: queries[name].to_numpy() for name in kept})

        def make(policy: PrivacyPolicy) -> Any:
            return protect(
                explain,
                model=accepts,
                population=self.people,
                policy=policy,
                desired=1,
                ledger=ledger,
            )

        self.answer = handler.RequestHandler(self.people, of, make, 50).answer

    def on_record(self) -> int:
        with sqlite3.connect(self.path) as ledger:
            return int(ledger.execute("select count(*) from cfk_ledger_releases").fetchone()[0])


@pytest.fixture(params=[False, True], ids=["rows", "sealed"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Book:
    return Book(tmp_path, sealed=request.param)


def test_values_that_cannot_be_are_refused_before_anything_is_on_record(book: Book) -> None:
    for rows in with_each(REFUSED):
        for asked in (rows, pd.DataFrame(rows, dtype=object)):
            with pytest.raises(handler.RequestError, match=re.escape(handler.VALUES)) as refused:
                book.answer(asked)
            assert not refused.value.ours, rows[1]
            assert refused.value.__context__ is None
    assert book.on_record() == 0


def test_what_is_on_record_is_what_left(book: Book) -> None:
    left = set()
    for rows in with_each(CONFORMED):
        found = [record for record in book.answer(rows) if record["reason"] != "already_desired"]
        needed = int(sum(~accepts(pd.DataFrame(rows)).astype(bool)))
        assert [record["status"] for record in found] == ["released"] * needed, rows[1]
        assert json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        left |= {json.dumps(record["features"], sort_keys=True) for record in found}
        assert all(record["sentence"].startswith("The model would predict") for record in found)
    assert 1 <= (before := book.on_record()) <= len(left) + 1
    book.answer([WHOLE])
    assert book.on_record() == before
    for rows in with_each(CONFORMED):
        found = book.answer(pd.DataFrame(rows, dtype=object))
        needed = int(sum(~accepts(pd.DataFrame(rows)).astype(bool)))
        released = [record for record in found if record["status"] == "released"]
        assert len(released) == needed, rows[1]
        reasons = {record["reason"] for record in found} - {None}
        assert reasons <= {"already_desired"}


def test_what_the_policy_would_raise_is_withheld_for_its_own_query(tmp_path: Path) -> None:
    strict = Book(tmp_path, sealed=False, on_infeasible="raise")
    rows = [WHOLE, {**WHOLE, "age": 61}]  # for 61 the explainer's answer has no age
    assert [record["status"] for record in strict.answer(rows)] == ["released", "withheld"]


def test_every_k_is_answered_by_one_of_a_few_partitions() -> None:
    whole, made = population(), []

    def make(policy: PrivacyPolicy) -> Any:
        made.append(policy.k)
        return protect(
            NearestInAge(PEOPLE), model=accepts, population=whole, policy=policy, desired=1
        )

    answer = handler.RequestHandler(
        whole, PrivacyPolicy(guarantee="reciprocal", k=K), make, 10
    ).answer
    for k in range(K, whole.n_people + 1):
        assert all(record["k"] >= k for record in answer([GOOD], {"k": k}))
    assert made == [5, 10, 20, 40, 60]


def test_a_request_may_limit_the_number_of_changes() -> None:
    told: list[int | None] = []

    class Told:
        def explain(self, queries: pd.DataFrame, *, max_changes: int | None) -> list[Withheld]:
            told.append(max_changes)
            return [Withheld(query, "no_actionable_answer") for query in range(len(queries))]

    def make(policy: PrivacyPolicy) -> Any:
        return Told()

    policy = PrivacyPolicy(guarantee="reciprocal", k=K)
    answer = handler.RequestHandler(population(), policy, make, 10).answer
    for params in ({"max_changes": 2}, {"max_changes": None}, {}):
        assert [record["reason"] for record in answer([GOOD], params)] == ["no_actionable_answer"]
    assert told == [2, None, None]
    for wrong in (0, -1, 2.5, True, "3"):
        with pytest.raises(handler.RequestError, match="max_changes"):
            answer([GOOD], {"max_changes": wrong})


# --- logged models --------------------------------------------------------------------------------


def test_the_loaded_model_shows_and_pickles_nothing(tmp_path: Path, mlflow_store: str) -> None:
    import mlflow

    info = logged()
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    inner = loaded.unwrap_python_model()
    assert not [name for name in vars(inner) if not name.startswith("_")]
    assert "SENTINEL" not in repr(inner) + repr(vars(inner)) + repr(loaded)
    with pytest.raises(TypeError, match="refuses to be pickled"):
        cloudpickle.dumps(inner)
    files = [
        path
        for path in Path(tmp_path).rglob("*")
        if path.is_file() and path.name != "explainer.pkl"
    ]
    assert any(path.name == "population.cfk" for path in files)
    assert not [path.name for path in files if b"SENTINEL0" in path.read_bytes()]
    tags = mlflow.models.get_model_info(info.model_uri).metadata
    assert tags["cfk.policy_sha256"] == PrivacyPolicy(guarantee="reciprocal", k=K).sha256


def test_what_cannot_be_logged_is_refused(mlflow_store: str) -> None:
    with pytest.raises(InputError, match="a function as `desired` cannot be logged"):
        logged(desired=lambda labels: labels == 1)
    with pytest.raises(InputError, match="make one up"):
        logged(input_example=PEOPLE.head(1))
    with pytest.raises(PolicyError, match="cannot hold"):
        logged(policy=PrivacyPolicy(k=K, guarantee="reciprocal", alpha=0.5))


def test_servers_that_share_a_ledger_give_a_record_one_region(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    uri = logged(ledger=True).model_uri
    with pytest.raises(LedgerError, match="set CFK_LEDGER"):
        mlflow.pyfunc.load_model(uri)
    monkeypatch.setenv("CFK_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("CFK_LEDGER_KEY", "a secret of the servers")
    with pytest.raises(LedgerError, match="cfk ledger create"):
        mlflow.pyfunc.load_model(uri)
    Ledger(create=True).close()
    queries = pd.DataFrame([GOOD] * 3).assign(age=[25, 40, 58])
    first, second = (
        mlflow.pyfunc.load_model(of) for of in (uri, logged(K + 4, ledger=True).model_uri)
    )
    before, after = first.predict(queries), second.predict(queries)
    assert {record["status"] for record in before} == {"released"}
    for old, new in zip(before, after, strict=True):
        assert new["status"] == "withheld" or new["features"] == old["features"]


# --- how `cfk serve` starts and ends --------------------------------------------------------------


class Yes:
    """A model that says nothing of its classes."""

    def predict(self, rows: pd.DataFrame) -> Any:
        return np.where(accepts(rows) == 1, "yes", "no")


class Broken:
    """An explainer that cannot be loaded, and says why with a row."""

    def __reduce__(self) -> Any:
        return _refuse, (str(PEOPLE.iloc[0].to_dict()),)


def _refuse(row: str) -> None:
    raise SystemExit(row)


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """Return what makes the command that serves an explainer and a model from files."""
    bundle = tmp_path / "population.cfk"
    KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=K)).fit(
        population(), model=accepts, desired=1
    ).seal(bundle)

    def serve(model: Any, desired: str, explainer: Any = None) -> list[str]:
        joblib.dump(model, tmp_path / "model.joblib")
        (tmp_path / "explainer.pkl").write_bytes(
            cloudpickle.dumps(explainer or NearestInAge(PEOPLE))
        )
        given = [
            "--bundle",
            str(bundle),
            "--model",
            str(tmp_path / "model.joblib"),
            "--desired",
            desired,
        ]
        return ["serve", str(tmp_path / "explainer.pkl"), *given]

    return serve


def refused(command: list[str]) -> str:
    said: Result = CliRunner().invoke(app, command)
    assert said.exit_code == 2
    assert "SENTINEL" not in said.output + said.stderr
    return said.stderr


def test_what_cannot_be_served_is_said_at_the_start_and_without_a_row(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert "cannot be loaded (SystemExit)" in refused(command(Yes(), "yes", Broken()))
    tree = DecisionTreeClassifier(max_depth=3).fit(PEOPLE[["age", "pay"]], accepts(PEOPLE))
    for model, desired, known in (
        (tree, "2", "0, 1"),
        (tree, "yes", "0, 1"),
        (Yes(), "1", "no, yes"),
    ):
        said = refused(command(model, desired))
        assert said.startswith(
            f"cfk: --desired {desired}: the model has no such outcome; its classes are "
        )
        assert all(f"{label}" in said.partition("classes are ")[2] for label in known.split(", "))
    bundle = tmp_path / "population.cfk"
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.write_bytes(bytes(content))
    assert re.match(
        "cfk: the .*(bundle|damaged)", refused(["serve", "x", *command(Yes(), "yes")[2:]])
    )
    population().seal(bundle)
    assert "the bundle has no policy" in refused(command(Yes(), "yes"))


@pytest.mark.parametrize(("desired", "warns"), [("maybe", True), ("yes", False)])
def test_an_outcome_that_cannot_be_checked_is_said(
    command: Callable[..., list[str]], desired: str, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []
    monkeypatch.setattr(
        "cfk_plugin.serving.server.make_app", lambda answer, *_, **__: answers.append(answer)
    )
    monkeypatch.setattr("cfk_plugin.serving.server.run", lambda *_, **__: 0)
    said = CliRunner().invoke(app, command(Yes(), desired))
    assert said.exit_code == 0
    assert (f"warning: --desired {desired}" in said.stderr) == warns
    assert [record["reason"] for record in answers[0]([GOOD])] == ["not_desired" if warns else None]


@pytest.mark.parametrize(
    "told", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_server_that_is_told_to_end_ends_well(
    command: Callable[..., list[str]], tmp_path: Path, told: signal.Signals
) -> None:
    with serving(
        tmp_path, store(tmp_path), ["cfk_plugin.cli", *command(Yes(), "yes"), "--read-timeout", "1"]
    ) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as waiting:
            waiting.sendall(
                b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{"
            )
            server.process.send_signal(told)
            assert server.process.wait(20) == 0
        assert "Traceback" not in server.console.read_text()
