"""The protected explainer and what it gives out: nothing but what an adapter names, however it is looked at."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import inspect
import io
import json
import operator
import pickle
import pprint
import random
import secrets
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    BudgetAccountant,
    DPPrototypes,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    ProtectedExplainer,
    RunLogger,
    Schema,
    Suppressed,
    hookimpl,
    protect,
    protected,
)
from cfk_plugin.errors import AdapterError, CFKError, NotForwardedError
from cfk_plugin.hookspecs import CounterfactualBatch
from cfk_plugin.testing import check_adapter

# --- a table in which every value occurs once, and no value by chance anywhere else ---------------------------------

KEY = b"a key that nobody else has: 7d1f"
FEATURES = ["age", "town", "pay", "note"]


def table(n: int = 60) -> pd.DataFrame:
    order = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": 730_000_019 + 7_919 * order.permutation(n),
            "town": [f"CANARY-TOWN-{i:03d}-{secrets.token_hex(4)}" for i in range(n)],
            "pay": 860_000_011 + 104_729 * order.permutation(n),
            "note": [f"CANARY-NOTE-{i:03d}-{secrets.token_hex(4)}" for i in range(n)],
        }
    )


TRAIN = table()
CUT = int(TRAIN["pay"].median()) + 17
QUERIES = TRAIN[TRAIN["pay"] <= CUT].head(3)
WANTED = TRAIN[TRAIN["pay"] > CUT].head(3)
POLICY = PrivacyPolicy(k=5)


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"].to_numpy(dtype=float) > CUT).astype(int)


@pytest.fixture(scope="module")
def population() -> Population:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "town"], sensitive=["pay"])
    return Population.from_frame(TRAIN, schema, key=KEY)


def private_of(explainer: Any, population: Population, **options: Any) -> ProtectedExplainer:
    return protect(explainer, **{"model": model, "population": population, "policy": POLICY, "desired": 1, **options})


def released(result: Any) -> set[str]:
    """Return the values that released entries show."""
    shown: set[str] = set()
    for entry in result:
        if isinstance(entry, GeneralizedCounterfactual):
            for part in entry.parts().values():
                shown |= {str(part.low), str(part.high)} if isinstance(part, Interval) else {str(v) for v in part}
    return shown


def found_in(content: bytes | str, but: set[str] = frozenset()) -> int:  # type: ignore[assignment]
    """Return how many values of rows, or of the key, a text or a file holds."""
    data = content.encode() if isinstance(content, str) else content
    known = but | {str(value) for value in QUERIES.to_numpy().ravel()}
    values = [value for name in TRAIN for value in TRAIN[name].tolist() if str(value) not in known]

    def images(value: Any) -> Iterator[bytes]:
        yield str(value).encode()
        if isinstance(value, int):
            yield struct.pack("<q", value)
            yield struct.pack("<d", float(value))

    return sum(any(image in data for image in images(value)) for value in values) + (KEY in data)


# --- deny by default ------------------------------------------------------------------------------------------------


class Rows:
    """An explainer that gives out training rows under every name, by every protocol, and has them as attributes."""

    def __init__(self) -> None:
        self.data, self.model = TRAIN.copy(), SimpleNamespace(fitted_on=TRAIN)

    def explain(self, queries: Any) -> pd.DataFrame:
        return WANTED.head(len(queries))

    def get_counterfactuals(self, queries: Any) -> pd.DataFrame:
        return WANTED

    attack = explain_batch = counterfactuals = transform = predict = get_counterfactuals

    @property
    def rows(self) -> pd.DataFrame:
        return TRAIN

    def __iter__(self) -> Iterator[Any]:
        return iter(TRAIN.to_numpy())

    def __len__(self) -> int:
        return len(TRAIN)

    def __getitem__(self, at: Any) -> Any:
        return TRAIN.iloc[0]

    def __contains__(self, value: object) -> bool:
        return value in TRAIN.to_numpy()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> Any:
        yield
        return TRAIN

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        return True

    def __add__(self, other: object) -> pd.DataFrame:
        return TRAIN

    def __int__(self) -> int:
        return int(TRAIN["age"].iloc[0])

    def __bytes__(self) -> bytes:
        return TRAIN.to_csv().encode()

    def __repr__(self) -> str:
        return TRAIN.to_string()

    def _repr_html_(self) -> str:
        return TRAIN.to_html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": TRAIN.to_html()}


REFUSED = [
    "get_counterfactuals", "attack", "explain_batch", "counterfactuals", "transform", "predict", "data", "model",
    "rows", "__wrapped__", "__dict__", "_repr_html_", "_repr_mimebundle_", "_repr_pretty_", "_explainer",
]  # fmt: skip


def test_a_name_that_the_adapter_does_not_map_is_refused_with_what_to_do(population: Population) -> None:
    private = private_of(Rows(), population)
    for name in REFUSED:
        with pytest.raises(NotForwardedError) as refused:
            getattr(private, name)
        assert isinstance(refused.value, CFKError)
        assert isinstance(refused.value, AttributeError)
        said = str(refused.value)
        for advice in (repr(name), "explainer has explain", "`methods`", "`forwarded`", "how-to/write-an-adapter.md"):
            assert advice in said
        assert not found_in(said)
        assert not hasattr(private, name)


def test_an_adapter_without_methods_leaves_explain_alone(population: Population) -> None:
    class Flipper:
        def flip(self, row: Mapping[str, Any]) -> dict[str, Any]:
            return WANTED.iloc[0].to_dict()

    class Source:
        name, instance_based, methods = "flipper", True, MappingProxyType({})

        def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
            return CounterfactualBatch.one_each(WANTED.head(len(queries)), np.ones(len(queries), dtype=bool))

        def restore(self, native: Any, explanations: Any) -> None: ...

    class Plugin:
        @hookimpl
        def cfk_adapt(self, explainer: Any) -> Any:
            return Source() if isinstance(explainer, Flipper) else None

    private = private_of(Flipper(), population, plugins=[Plugin()])
    with pytest.raises(NotForwardedError, match=r"this protected explainer has explain\. Ask"):
        private.flip({})
    assert [name for name in dir(private) if not name.startswith("_")] == ["explain"]
    assert len(private.explain(QUERIES).released) == len(QUERIES)


PROTOCOLS: dict[str, Callable[[Any], Any]] = {
    "iterate": list,
    "length": len,
    "index": lambda it: it[0],
    "contain": lambda it: WANTED["town"].iloc[0] in it,
    "context": lambda it: it.__enter__(),
    "with": lambda it: contextlib.ExitStack().enter_context(it),
    "await": lambda it: _awaited(it).send(None),  # Not `asyncio.run`: a browser's test may have left a loop that runs.
    "add": lambda it: it + 1,
    "less": lambda it: it < 1,
    "int": int,
    "index number": operator.index,
    "bytes": bytes,
    "vars": vars,
    "dict": dict,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "cloudpickle": cloudpickle.dumps,
    "joblib": lambda it: joblib.dump(it, io.BytesIO()),
    "pickle a method": lambda it: cloudpickle.dumps(it.generate_counterfactuals),
    "pickle explain": lambda it: cloudpickle.dumps(it.explain),
    "set": lambda it: setattr(it, "data", 1),
    "delete": lambda it: delattr(it, "explain"),
    "set a class": lambda it: setattr(it, "__class__", Rows),
    "getstate": lambda it: it.__getstate__()[0],
    "asdict": dataclasses.asdict,
}


async def _awaited(thing: Any) -> Any:
    return await thing


def test_no_protocol_of_the_language_reaches_the_explainer(population: Population) -> None:
    class Both(Rows):
        generate_counterfactuals = Rows.explain

    private = private_of(Both(), population)
    for how, protocol in PROTOCOLS.items():
        with pytest.raises((CFKError, TypeError, AttributeError)) as refused:
            pytest.fail(f"{how} gives {protocol(private)!r}")
        assert not found_in(str(refused.value)), how
    assert type(private) is private.__class__ is ProtectedExplainer
    assert not isinstance(private, Rows)
    assert not operator.eq(private, 1)  # by identity
    assert {private: 1}[private] == 1


@pytest.mark.parametrize("method", ["auto", "dp"])
def test_no_attribute_leads_to_a_row(population: Population, method: str) -> None:
    explainer = Rows()
    if method == "dp":
        population, explainer = declared(), Numbers()
    private = private_of(explainer, population, method=method, policy=None)
    assert "explain" in dir(private)
    for name in {*dir(private), *dir(explainer), *vars(explainer), "__wrapped__", "__dict__", "_self_source"}:
        value = getattr(private, name, None)
        assert value is not explainer
        assert not found_in(repr(value)), name
        if isinstance(value, (FunctionType, MethodType)):
            function = getattr(value, "__func__", value)
            reached = [cell.cell_contents for cell in function.__closure__ or ()] + [getattr(value, "__self__", None)]
            assert not any(one is explainer or isinstance(one, (Rows, pd.DataFrame)) for one in reached), name
    assert not [one for one in gc.get_referents(private) if not isinstance(one, type)]


class Numbers(Rows):
    def explain(self, queries: Any) -> pd.DataFrame:
        raise AssertionError("the explainer was asked")


def declared() -> Population:
    """Return a population of which everything is declared, as differential privacy needs it."""
    numbers = TRAIN[["age", "pay"]]
    bounds = {"age": (700e6, 800e6), "pay": (800e6, 900e6)}
    schema = Schema.from_frame(numbers, quasi_identifiers=["age"], bounds=bounds, nullable=[])
    return Population.from_frame(numbers, schema, key=KEY)


class Told:
    """An explainer of which an adapter names some things."""

    version, threshold, secret_rows = "1.2", 0.5, TRAIN

    def explain(self, queries: Any) -> pd.DataFrame:
        return WANTED.head(len(queries))

    def describe(self, words: str = "told") -> str:
        return words

    def fail(self) -> None:
        raise SystemExit(f"age={TRAIN['age'].iloc[5]}")

    @property
    def broken(self) -> None:
        raise ValueError(f"age={TRAIN['age'].iloc[5]}")


class TellingSource:
    name, instance_based, methods = "telling", False, MappingProxyType({})
    forwarded = ("version", "threshold", "describe", "fail", "broken", "absent")

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch.one_each(WANTED.head(len(queries)), np.ones(len(queries), dtype=bool))

    def restore(self, native: Any, explanations: Any) -> None: ...


class Telling:
    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        return TellingSource() if isinstance(explainer, Told) else None


def test_what_the_adapter_names_is_given_as_it_is_and_leads_nowhere(population: Population) -> None:
    private = private_of(Told(), population, plugins=[Telling()])
    assert (private.version, private.threshold) == ("1.2", 0.5)
    assert private.describe(words="so") == "so"
    assert {"version", "threshold", "describe", "explain"} <= set(dir(private))
    assert not hasattr(private.describe, "__self__")
    with pytest.raises(CFKError):
        cloudpickle.dumps(private.describe)
    for name in ("broken", "absent"):
        with pytest.raises(NotForwardedError, match="cannot be read") as failed:
            getattr(private, name)
        assert not found_in(str(failed.value))
        assert failed.value.__context__ is None
    with pytest.raises(AdapterError, match=r"fail of the explainer failed \(SystemExit\)") as failed:
        private.fail()
    assert not found_in(str(failed.value))
    with pytest.raises(NotForwardedError):
        private.secret_rows  # noqa: B018 - it is read


def test_prototypes_forward_nothing(population: Population) -> None:
    private = private_of(Told(), declared(), method="dp", policy=None, plugins=[Telling()])
    with pytest.raises(NotForwardedError, match=r"has explain\. Ask"):
        private.version  # noqa: B018 - it is read
    assert len(private.explain(QUERIES[["age", "pay"]])) == len(QUERIES)


def test_a_decorated_function_keeps_its_name(population: Population) -> None:
    @protected(model=model, population=population, policy=POLICY, desired=1)
    def answers(queries: pd.DataFrame) -> pd.DataFrame:
        return WANTED.head(len(queries))

    answers_of: Any = answers
    assert answers_of.__name__ == "answers"
    assert len(answers(QUERIES).released) == len(QUERIES)
    for name in ("__globals__", "__closure__", "__code__", "__defaults__"):
        assert not hasattr(answers, name)


def test_an_explainer_that_is_ours_keeps_what_it_was_asked_for(population: Population) -> None:
    private = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population)
    assert (private.desired, private.features) == (1, FEATURES)
    for name in ("predicted", "neighbours", "candidates", "rows", "_train", "_model"):
        assert not hasattr(private, name)


# --- what it shows --------------------------------------------------------------------------------------------------

INNER = [
    "k_desired", "k_consistent", "k_effective", "k_private", "private_matches", "prosecutor_risk", "journalist_risk",
    "majority", "ncp_parts", "disclosure", "k_intersection", "refused_k", "ledger",
]  # fmt: skip


def in_ipython(thing: Any) -> str:
    """Return everything that IPython shows of an object."""
    formatters = pytest.importorskip("IPython.core.formatters", reason="needs IPython, of the extra [dev]")
    shown, about = formatters.DisplayFormatter().format(thing)
    return json.dumps(shown, default=str) + json.dumps(about, default=str)


def by_rich(thing: Any) -> str:
    from rich.console import Console
    from rich.pretty import Pretty

    console = Console(file=io.StringIO(), width=400)
    console.print(Pretty(thing))
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


PRINTERS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "format": lambda thing: f"{thing}",
    "pprint": pprint.pformat,
    "rich": by_rich,
    "IPython": in_ipython,
}


def test_a_protected_explainer_shows_itself(population: Population) -> None:
    private = private_of(Rows(), population)
    for printer in PRINTERS.values():
        shown = printer(private)
        assert "ProtectedExplainer(Rows, KAnonymizer(" in shown
        assert " at 0x" not in shown
        assert not found_in(shown)
    notebook = in_ipython(private_dice("random"))
    assert "ProtectedExplainer(dice:DiceRandom" in notebook
    assert not any(inner in notebook for inner in ("dice_ml", "0x"))


@pytest.fixture(scope="module")
def results(population: Population, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return explanations: released by the catalogue, with a ledger, and suppressed with a count that was refused."""
    private = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population)
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with Ledger(path, key=KEY, create=True) as ledger:
        policy = PrivacyPolicy(k=5, guarantee="reciprocal")
        kept = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population, policy=policy, ledger=ledger)
        return {"catalogue": private.explain(QUERIES), "ledger": kept.explain(QUERIES)}


def test_an_entry_shows_what_may_leave_and_the_data_holder_has_every_count(results: dict[str, Any]) -> None:
    withheld = Suppressed(0, "intersection", refused_k=3)
    for result in results.values():
        (first, *_), kept = result.released, released(result)
        certificate = first.certificate
        assert certificate.k_private is not None
        things = (first, certificate, [first], {"certificate": certificate})
        written = [printer(thing) for printer in PRINTERS.values() for thing in things]
        # As web frameworks and serialisers do: fields of a dataclass, else attributes.
        written += [repr(dataclasses.asdict(first)), repr(first.to_dict()), repr(certificate.public())]
        for text in written:
            assert "pureness" in text
            assert not [name for name in INNER if name in text]
            assert not found_in(text, kept)
        for thing in (certificate, withheld):
            assert not dataclasses.is_dataclass(thing)
            for write in (dataclasses.asdict, vars):
                with pytest.raises(TypeError):
                    write(thing)  # type: ignore[operator]
        counts = {name: getattr(certificate, name) for name in inspect.signature(type(certificate)).parameters}
        assert certificate.to_dict() == counts
        assert set(INNER) - {"refused_k"} <= set(counts) & set(result.audit_frame().columns)
        assert set(certificate.public()) < {*counts, "not_stopped"}
    assert withheld.refused_k == 3
    assert not any("refused_k" in printer(withheld) for printer in PRINTERS.values())


def by_joblib(thing: Any) -> bytes:
    file = io.BytesIO()
    joblib.dump(thing, file)
    return file.getvalue()


DUMPERS: list[Callable[[Any], bytes]] = [pickle.dumps, cloudpickle.dumps, by_joblib]


def test_an_entry_that_travels_leaves_inner_counts_behind(results: dict[str, Any]) -> None:
    entry = results["catalogue"].released[0]
    for thing in (entry, entry.certificate, [entry]):
        for dump in DUMPERS:
            with pytest.raises(CFKError, match=r"to_dict\(\)"):
                dump(thing)
    withheld = Suppressed(2, "intersection", ("age",), refused_k=3)
    there = pickle.loads(pickle.dumps(withheld))
    assert (there, there.refused_k) == (withheld, None)
    assert copy.copy(entry.certificate) is copy.deepcopy(entry.certificate) is entry.certificate
    assert copy.deepcopy(entry) == entry


# --- what can be reached --------------------------------------------------------------------------------------------

HOST_ONLY = {"frame", "regions", "domains"}
"""Rows and values of a population and regions of a partition: asked for by name, and never to leave.

A domain itself refuses to be pickled and shows no value (below); its arrays of values are plain arrays.
"""


def reachable(name: str, thing: Any, seen: dict[int, Any], depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Go through public attributes of public objects, and of what they lead to."""
    plain = (ModuleType, type, FunctionType, MethodType, BuiltinFunctionType, str, int, float, bool, bytes, type(None))
    if id(thing) in seen or isinstance(thing, plain):
        return
    seen[id(thing)] = thing
    yield name, thing
    inner: list[tuple[str, Any]] = []
    if type(thing).__module__.startswith("cfk_plugin"):
        for attribute in dir(thing):
            if not attribute.startswith("_") and attribute not in HOST_ONLY:
                with contextlib.suppress(Exception):
                    inner.append((f"{name}.{attribute}", getattr(thing, attribute)))
    elif isinstance(thing, Mapping):
        inner = [(f"{name}[...]", value) for value in list(thing.values())[:6]]
    elif isinstance(thing, (list, tuple)):
        inner = [(f"{name}[{i}]", value) for i, value in enumerate(thing[:3])]
    for each in inner if depth else ():
        yield from reachable(*each, seen, depth - 1)


@pytest.fixture(scope="module")
def things(population: Population, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("things")
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model, 1)
    with Ledger(folder / "ledger.db", key=KEY, create=True) as ledger, warnings.catch_warnings(action="ignore"):
        recorded = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="reciprocal"), ledger=ledger).fit(
            population, model, 1
        )
        recorded_result = recorded.transform(WANTED)
        sealable = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="reciprocal", objective="ncp")).fit(
            population, model, 1
        )
        sealable.seal(folder / "sealed.cfk")
        private = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population)
        yield {
            "population": population,
            "opened": Population.open(folder / "sealed.cfk", key=KEY),
            "anonymizer": anonymizer,
            "recorded": recorded,
            "private": private,
            "explanations": private.explain(QUERIES),
            "recorded result": recorded_result,
            "ledger": ledger,
            "prototypes": DPPrototypes(epsilon=5.0, rows=200).fit(declared(), model, 1),
            "accountant": BudgetAccountant(10.0),
            "logger": RunLogger(),
            "risk profile": population.risk_profile(5),
            "partition": recorded.guarantee_.partition,
            "catalogue": anonymizer.guarantee_.catalogue,
        }


def test_no_public_attribute_shows_or_pickles_rows_or_the_key(things: dict[str, Any]) -> None:
    kept = released(things["explanations"]) | released(things["recorded result"])
    walked, leaks = 0, []
    seen: dict[int, Any] = {}
    for root, top in things.items():
        for name, thing in reachable(root, top, seen):
            walked += 1
            shown = repr(thing).encode() + str(thing).encode()
            for dump in DUMPERS:
                with contextlib.suppress(Exception):
                    shown += dump(thing)
            leaks += [name] if found_in(shown, kept) else []
    assert walked > 150
    assert not leaks
    for population in (things["population"], things["opened"]):
        for thing in (*population.domains.values(), population.encoder):
            for dump in (*DUMPERS, copy.deepcopy):
                with pytest.raises(CFKError, match="refuses to be pickled"):
                    dump(thing)


# --- DiCE, as its notebooks use it ----------------------------------------------------------------------------------

METHODS = ["random", "genetic", "kdtree"]


def adults(n: int = 260) -> pd.DataFrame:
    """Return a table like that of DiCE's notebooks."""
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "workclass": rng.choice(["Government", "Private", "Self-Employed"], n),
            "education": rng.choice(["HS-grad", "Bachelors", "Masters"], n),
            "hours_per_week": rng.integers(10, 70, n),
            "rate": np.round(rng.normal(20, 5, n), 1),
        }
    )
    score = frame["age"] + frame["hours_per_week"] + 20 * (frame["education"] == "Masters") + rng.normal(0, 5, n)
    return frame.assign(income=(score > score.median()).astype(int))


ADULTS = adults()
COLUMNS = ["age", "workclass", "education", "hours_per_week", "rate"]
TEXTS = ["workclass", "education"]
_FITTED: dict[str, Any] = {}


def dice_of(method: str) -> Any:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    if "model" not in _FITTED:
        numbers = [name for name in COLUMNS if name not in TEXTS]
        encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), TEXTS), (StandardScaler(), numbers))
        _FITTED["model"] = make_pipeline(encode, LogisticRegression()).fit(ADULTS[COLUMNS], ADULTS["income"])
        schema = Schema.from_frame(ADULTS, quasi_identifiers=["age", "workclass"], target="income")
        _FITTED["population"] = Population.from_frame(ADULTS, schema)
    data = dice_ml.Data(dataframe=ADULTS, continuous_features=["age", "hours_per_week", "rate"], outcome_name="income")
    return dice_ml.Dice(data, dice_ml.Model(model=_FITTED["model"], backend="sklearn"), method=method)


def private_dice(method: str) -> Any:
    explainer = dice_of(method)
    policy = PrivacyPolicy(k=3, guarantee="reciprocal")
    return protect(explainer, model=_FITTED["model"], population=_FITTED["population"], policy=policy, desired=1)


def low() -> pd.DataFrame:
    return ADULTS.loc[ADULTS["income"] == 0, COLUMNS]


def options_of(method: str) -> dict[str, Any]:
    return {"maxiterations": 20} if method == "genetic" else {}


def result_of(method: str, queries: pd.DataFrame | None = None, **options: Any) -> Any:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - DiCE draws from it
    asked = low().head(3) if queries is None else queries
    call = {"total_CFs": 2, "desired_class": 1, **options_of(method), **options}
    return private_dice(method).generate_counterfactuals(asked, **call)


def is_general(cell: Any) -> bool:
    return isinstance(cell, str) and any(mark in cell for mark in ("–", "{", "withheld", "missing"))


@pytest.mark.parametrize("method", METHODS)
def test_dice_documented_calls_keep_working(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("IPython", reason="needs IPython, of the extra [dev]: DiCE's tables are shown by it")
    one = result_of(method, low().head(1), total_CFs=4)
    several = result_of(method)
    limits = {"features_to_vary": ["hours_per_week", "age", "rate"], "permitted_range": {"hours_per_week": [10, 69]}}
    limited = result_of(method, low().head(1), **limits)
    assert type(one).__module__ == "dice_ml.counterfactual_explanations"
    assert [len(r.cf_examples_list) for r in (one, several, limited)] == [1, 3, 1]
    kept = 0
    for result in (one, several, limited):
        assert sum(e.final_cfs_df is not None for e in result.cf_examples_list)
        for only_changes in (False, True):
            for sparse in (False, True):
                result.visualize_as_dataframe(display_sparse_df=sparse, show_only_changes=only_changes)
                result.visualize_as_list(display_sparse_df=sparse, show_only_changes=only_changes)
        again = type(result).from_json(result.to_json())
        assert again == result
        for mine, its in zip(result.cf_examples_list, again.cf_examples_list, strict=True):
            shown = mine.final_cfs_df if mine.final_cfs_df_sparse is None else mine.final_cfs_df_sparse
            assert (its.final_cfs_df is None) == (shown is None)
            if shown is not None:
                assert its.final_cfs_df.to_numpy().tolist() == shown.to_numpy().tolist()
            query = mine.test_instance_df.iloc[0].to_dict()
            for frame in (mine.final_cfs_df, mine.final_cfs_df_sparse):
                for row in [] if frame is None else frame[COLUMNS].to_dict("records"):
                    exact = {name: cell for name, cell in row.items() if not is_general(cell)}
                    assert {name: type(cell) for name, cell in exact.items()} == {n: type(query[n]) for n in exact}
                    kept += len(exact)
        again.visualize_as_dataframe(show_only_changes=True)
        pickle.loads(pickle.dumps(result)).visualize_as_list(show_only_changes=True)
    assert kept >= 6
    assert "Query instance (original outcome : 0)" in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_unchanged_numbers_show_as_unchanged(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What DiCE may not vary is as in the query, so it is a dash in each row."""
    fixed = ["rate", "education"] if method != "kdtree" else []
    free = [name for name in COLUMNS if name not in fixed]
    result = result_of(method, features_to_vary=free if fixed else "all")
    examples = next(e for e in result.cf_examples_list if e.final_cfs_df is not None)
    expected = 0
    own = examples.test_instance_df.iloc[0]
    for row in examples.final_cfs_df_sparse.to_dict("records"):
        expected += sum(row[name] == own[name] for name in TEXTS)
        numbers = [name for name in COLUMNS if name not in TEXTS and not isinstance(row[name], str)]
        expected += sum(abs(row[name] - own[name]) <= 1e-4 * abs(own[name]) for name in numbers)  # DiCE's own measure
    capsys.readouterr()
    examples.visualize_as_list(show_only_changes=True)
    assert capsys.readouterr().out.count("'-'") == expected
    if fixed:
        assert expected >= 2 * len(examples.final_cfs_df_sparse)


def test_dice_importances_keep_working() -> None:
    private, options = private_dice("random"), {"posthoc_sparsity_param": None}
    query, ten = low().head(1), low().head(10)
    local = private.local_feature_importance(query, total_CFs=10, **options)
    assert set(local.local_importance[0]) == set(COLUMNS)
    both = private.feature_importance(query, total_CFs=10, global_importance=False, **options)
    assert set(both.local_importance[0]) == set(COLUMNS)
    overall = private.global_feature_importance(ten, total_CFs=10, **options)
    assert set(overall.summary_importance) == set(COLUMNS)
    again = type(overall).from_json(overall.to_json())
    assert again.summary_importance == overall.summary_importance


WORKING = {"generate_counterfactuals", "local_feature_importance", "global_feature_importance", "feature_importance"}


@pytest.mark.parametrize("method", METHODS)
def test_all_of_dice_works_or_says_what_to_do(method: str, tmp_path: Path) -> None:
    explainer, private = dice_of(method), private_dice(method)
    names = {name for name in {*dir(explainer), *vars(explainer)} if not name.startswith("__")}
    assert names > {"data_interface", "model", "serialize_explainer", "predict_fn", *WORKING}
    assert {name for name in names if hasattr(private, name)} == WORKING
    for name in names - WORKING:
        with pytest.raises(NotForwardedError, match="Ask the explainer itself where you hold it"):
            getattr(private, name)
    with pytest.raises(NotForwardedError, match="serialize_explainer"):
        private.serialize_explainer(tmp_path / "explainer.pkl")
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotForwardedError, match="set it before you protect it"):
        private.data_interface = None


@pytest.mark.parametrize("kind", ["frame", "array", "dicts"])
def test_functions_give_single_values_back_in_their_type(population: Population, kind: str) -> None:
    def explain(queries: Any) -> Any:
        found = WANTED.head(len(queries))
        return {"frame": found, "array": found.to_numpy(dtype=object), "dicts": found.to_dict("records")}[kind]

    private = private_of(SimpleNamespace(generate_counterfactuals=explain), population)
    answer: Any = private.generate_counterfactuals(QUERIES)
    if kind == "dicts":
        pays = [row["pay"] for row in answer]
    else:
        pays = (answer["pay"] if kind == "frame" else answer[:, FEATURES.index("pay")]).tolist()
    assert set(pays) <= set(TRAIN["pay"])
    assert {type(pay) for pay in pays} == {int}


# --- the contract bites ---------------------------------------------------------------------------------------------

ASKED = pd.DataFrame({"age": [2511, 4022, 6133], "income": [3044, 9055, 5566]})
NAMES = ["age", "income"]


class Library:
    """An explainer whose answers can be told from everything else."""

    version, rows = "1.2", ASKED + 10_000

    def answer(self, queries: pd.DataFrame) -> pd.DataFrame:
        return queries[NAMES] + 10_000

    def describe(self) -> str:
        return f"it starts from {self.rows['age'].iloc[0]}"

    def neighbours(self, queries: pd.DataFrame) -> list[Any]:
        return self.answer(queries).to_numpy().tolist()


class Good:
    """An adapter that keeps every rule; tests break one."""

    name, instance_based, forwarded = "library", True, ("version",)

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {"answer": self.answer}

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        self.explainer = explainer
        return self

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch.one_each(self.explainer.answer(queries), np.ones(len(queries), dtype=bool))

    def answer(self, queries: pd.DataFrame) -> Any:
        batch = self.generate(queries)
        return batch, batch.frame, queries

    def restore(self, native: Any, explanations: Any) -> Any:
        return [entry.to_dict() for entry in explanations]

    def __repr__(self) -> str:
        return "Good()"


class Shown:
    """A result that shows what it is made of."""

    def __init__(self, native: Any) -> None:
        self._text = native.to_string()

    def __repr__(self) -> str:
        return self._text


def told(explanations: Any, native: Any, kept: str) -> list[Any]:
    """Keep the native rows of the entries that are released, or that are withheld."""
    rows = zip(explanations, native.to_dict("records"), strict=True)
    return [{**row, **entry.to_dict(), "was": row} if entry.status == kept else entry.to_dict() for entry, row in rows]


def takes_more(self: Good, queries: pd.DataFrame, *, needed: int) -> Any:
    return Good.answer(self, queries)


KEEPS = "`restore` keeps values"
BROKEN: list[tuple[str, Any, str]] = [
    ("restore", lambda self, native, explanations: native, "gives back what answer returned"),
    ("restore", lambda self, native, explanations: [*explanations, native], KEEPS),
    ("restore", lambda self, native, explanations: f"about {native['age'].iloc[1]}", KEEPS),
    ("restore", lambda self, native, explanations: native.to_numpy()[:0], KEEPS),  # empty, and a view of all rows
    ("restore", lambda self, native, explanations: lambda: native, KEEPS),
    ("restore", lambda self, native, explanations: SimpleNamespace(result=[Shown(native)]), KEEPS),
    ("restore", lambda self, native, found: told(found, native, "suppressed"), "where all was withheld"),
    ("restore", lambda self, native, found: told(found, native, "released"), "where all was released as something"),
    ("restore", lambda self, native, found: [float(e.cells()["age"]) for e in found], "`restore` raised"),
    ("forwarded", ("version", "rows"), "`forwarded` names rows, which leads to values"),
    ("forwarded", ("neighbours",), "`forwarded` names neighbours, which leads to values"),
    ("forwarded", ("no_such_name",), "which the explainer does not have"),
    ("forwarded", "version", "`forwarded` must be a tuple of names"),
    ("forwarded", ("answer",), "`forwarded` names what is protected: answer"),
    ("answer", lambda self, queries: self.generate(queries), r"answer must return \(batch, native_result, queries\)"),
    ("answer", takes_more, "answer raised TypeError; say in `arguments` how it is called"),
]


def other(name: str, value: Any) -> Good:
    """Return an adapter that keeps every rule but one."""
    adapter: Good = type("Other", (Good,), {name: value})()
    return adapter


def test_a_good_adapter_passes() -> None:
    assert len(check_adapter(Library(), ASKED, NAMES, plugins=[Good()]).frame) == 3


@pytest.mark.parametrize(("name", "value", "rule"), BROKEN)
def test_an_adapter_that_leaks_is_told_the_rule_it_breaks(name: str, value: Any, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule) as broken:
        check_adapter(Library(), ASKED, NAMES, plugins=[other(name, value)])
    assert not [value for value in (ASKED + 10_000).to_numpy().ravel() if str(value) in str(broken.value)]


def test_methods_are_called_as_the_author_says() -> None:
    plugins, arguments = [other("answer", takes_more)], {"answer": ([ASKED], {"needed": 1})}
    check_adapter(Library(), ASKED, NAMES, plugins=plugins, arguments=arguments)
    with pytest.raises(AssertionError, match="`forwarded` names describe, which leads to values"):
        check_adapter(
            Library(), ASKED, NAMES, plugins=[other("forwarded", ("describe",))], arguments={"describe": ([], {})}
        )


def test_training_rows_are_looked_for_where_they_are_given() -> None:
    class Far(Library):
        rows = ASKED + 77_000

    plugin = other("forwarded", ("version", "rows"))
    check_adapter(Far(), ASKED, NAMES, plugins=[plugin])
    with pytest.raises(AssertionError, match="`forwarded` names rows"):
        check_adapter(Far(), ASKED, NAMES, plugins=[plugin], rows=ASKED + 77_000)
