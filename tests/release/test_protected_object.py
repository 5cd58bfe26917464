"""The protected explainer and what it gives out: nothing but what an adapter names, however it is
looked at.
"""

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
import secrets
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest

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
    Schema,
    Withheld,
    hookimpl,
    protect,
    protected,
)
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.errors import AdapterError, CFKError, NotForwardedError
from cfk_plugin.records.logger import RunLogger

# --- a table in which every value occurs once, and no value by chance anywhere else ---------------

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
POLICY = PrivacyPolicy(guarantee="lookup", k=5)


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"].to_numpy(dtype=float) > CUT).astype(int)


@pytest.fixture(scope="module")
def population() -> Population:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "town"], sensitive=["pay"])
    return Population.from_frame(TRAIN, schema, key=KEY)


def private_of(explainer: Any, population: Population, **options: Any) -> ProtectedExplainer:
    return protect(
        explainer,
        **{"model": model, "population": population, "policy": POLICY, "desired": 1, **options},
    )


def released(result: Any) -> set[str]:
    """Return the values that released entries show."""
    shown: set[str] = set()
    for entry in result:
        if isinstance(entry, GeneralizedCounterfactual):
            for part in entry.parts().values():
                shown |= (
                    {str(part.low), str(part.high)}
                    if isinstance(part, Interval)
                    else {str(v) for v in part}
                )
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


# --- deny by default ------------------------------------------------------------------------------


class Rows:
    """An explainer that gives out training rows under every name, by every protocol, and has them
    as attributes.
    """

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
    "rows", "__wrapped__", "__dict__", "_repr_mimebundle_", "_repr_pretty_", "_explainer",
]  # fmt: skip


def test_a_name_that_the_adapter_does_not_map_is_refused_with_what_to_do(
    population: Population,
) -> None:
    private = private_of(Rows(), population)
    for name in REFUSED:
        with pytest.raises(NotForwardedError) as refused:
            getattr(private, name)
        assert isinstance(refused.value, CFKError)
        assert isinstance(refused.value, AttributeError)
        said = str(refused.value)
        for advice in (
            repr(name),
            "explainer has explain",
            "`methods`",
            "`forwarded`",
            "how-to/write-an-adapter.md",
        ):
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
            return CounterfactualBatch.one_each(
                WANTED.head(len(queries)), np.ones(len(queries), dtype=bool)
            )

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
    # Not `asyncio.run`: a browser's test may have left a loop that runs.
    "await": lambda it: _awaited(it).send(None),
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
    policy = None if method == "dp" else POLICY
    private = private_of(explainer, population, method=method, policy=policy)
    assert "explain" in dir(private)
    for name in {
        *dir(private),
        *dir(explainer),
        *vars(explainer),
        "__wrapped__",
        "__dict__",
        "_self_source",
    }:
        value = getattr(private, name, None)
        assert value is not explainer
        assert not found_in(repr(value)), name
        if isinstance(value, (FunctionType, MethodType)):
            function = getattr(value, "__func__", value)
            reached = [cell.cell_contents for cell in function.__closure__ or ()] + [
                getattr(value, "__self__", None)
            ]
            assert not any(
                one is explainer or isinstance(one, (Rows, pd.DataFrame)) for one in reached
            ), name
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
        return CounterfactualBatch.one_each(
            WANTED.head(len(queries)), np.ones(len(queries), dtype=bool)
        )

    def restore(self, native: Any, explanations: Any) -> None: ...


class Presentation:
    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        return TellingSource() if isinstance(explainer, Told) else None


def test_what_the_adapter_names_is_given_as_it_is_and_leads_nowhere(population: Population) -> None:
    private = private_of(Told(), population, plugins=[Presentation()])
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
    with pytest.raises(
        AdapterError, match=r"fail of the explainer failed \(SystemExit\)"
    ) as failed:
        private.fail()
    assert not found_in(str(failed.value))
    with pytest.raises(NotForwardedError):
        private.secret_rows  # noqa: B018 - it is read


def test_prototypes_forward_nothing(population: Population) -> None:
    private = private_of(Told(), declared(), method="dp", policy=None, plugins=[Presentation()])
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
    for name in ("predicted", "neighbours", "rows", "_train", "_model"):
        assert not hasattr(private, name)


# --- what it shows --------------------------------------------------------------------------------

INNER = [
    "k_desired", "k_consistent", "k_effective", "k_private", "private_matches",
    "majority", "ncp_parts", "disclosure", "k_intersection", "refused_k", "ledger",
]  # fmt: skip


def in_ipython(thing: Any) -> str:
    """Return everything that IPython shows of an object."""
    formatters = pytest.importorskip(
        "IPython.core.formatters", reason="needs IPython, of the extra [dev]"
    )
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
        assert "ProtectedExplainer(Rows, k = " in shown
        assert " at 0x" not in shown
        assert not found_in(shown)


@pytest.fixture(scope="module")
def results(population: Population, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return explanations: released by the catalogue, with a ledger, and withheld with a count
    that was refused.
    """
    private = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population)
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with Ledger(path, key=KEY, create=True) as ledger:
        policy = PrivacyPolicy(k=5, guarantee="lookup")
        kept = private_of(
            NearestUnlikeNeighbour(TRAIN, model, 1), population, policy=policy, ledger=ledger
        )
        return {"catalogue": private.explain(QUERIES), "ledger": kept.explain(QUERIES)}


def test_an_entry_shows_what_may_leave_and_the_data_holder_has_every_count(
    results: dict[str, Any],
) -> None:
    withheld = Withheld(0, "intersection", refused_k=3)
    for result in results.values():
        (first, *_), kept = result.released, released(result)
        certificate = first.certificate
        recount = first.recount
        assert recount.k_private is not None
        things = (first, certificate, [first], {"certificate": certificate})
        written = [printer(thing) for printer in PRINTERS.values() for thing in things]
        assert "pureness" in PRINTERS["repr"](first)
        # As web frameworks and serialisers do: fields of a dataclass, else attributes.
        written += [
            repr(dataclasses.asdict(first)),
            repr(first.to_dict()),
            repr(certificate.to_dict()),
            repr(dataclasses.asdict(certificate)),
        ]
        for text in written:
            assert not [name for name in INNER if name in text]
            assert not found_in(text, kept)
        for printer in PRINTERS.values():
            assert not [name for name in (*INNER, "pureness") if name in printer(recount)]
        for thing in (recount, withheld):
            assert not dataclasses.is_dataclass(thing)
            for write in (dataclasses.asdict, vars):
                with pytest.raises(TypeError):
                    write(thing)  # type: ignore[operator]
        counts = {
            name: getattr(recount, name) for name in inspect.signature(type(recount)).parameters
        }
        assert recount.to_dict() == {"k_worst": recount.k_worst, **counts}
        assert set(INNER) - {"refused_k"} <= set(counts) & set(result.audit_frame().columns)
        assert set(certificate.to_dict()) & set(counts) == {"k"}
    assert withheld.refused_k == 3
    assert not any("refused_k" in printer(withheld) for printer in PRINTERS.values())


def by_joblib(thing: Any) -> bytes:
    file = io.BytesIO()
    joblib.dump(thing, file)
    return file.getvalue()


DUMPERS: list[Callable[[Any], bytes]] = [pickle.dumps, cloudpickle.dumps, by_joblib]


def test_an_entry_that_travels_leaves_inner_counts_behind(results: dict[str, Any]) -> None:
    entry = results["catalogue"].released[0]
    assert pickle.loads(pickle.dumps(entry.certificate)) == entry.certificate
    for thing in (entry, entry.recount, [entry]):
        for dump in DUMPERS:
            with pytest.raises(CFKError, match=r"to_dict\(\)"):
                dump(thing)
    withheld = Withheld(2, "intersection", ("age",), refused_k=3)
    there = pickle.loads(pickle.dumps(withheld))
    assert (there, there.refused_k) == (withheld, None)
    assert copy.copy(entry.recount) is copy.deepcopy(entry.recount) is entry.recount
    assert copy.deepcopy(entry) == entry


def test_a_withheld_explanation_cannot_be_changed_and_its_state_has_no_count() -> None:
    withheld = Withheld(2, "intersection", ("age",), refused_k=3)
    assert withheld.__getstate__() == (2, "intersection", ("age",))
    assert withheld == Withheld(2, "intersection", ("age",), refused_k=4)
    assert hash(withheld) == hash(Withheld(2, "intersection", ("age",)))
    assert withheld != Withheld(2, "intersection")
    for name in ("query", "refused_k", "another"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(withheld, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(withheld, name)


def test_an_explanation_with_another_query_is_shown_the_same_way(results: dict[str, Any]) -> None:
    explanation = results["catalogue"].released[0]
    renumbered = explanation.with_query(7)
    assert renumbered.presentation is explanation.presentation
    assert renumbered.to_dict() == {**explanation.to_dict(), "query": 7}


# --- what can be reached --------------------------------------------------------------------------

HOST_ONLY = {"frame", "regions", "domains"}
"""Rows and values of a population and regions of a partition: asked for by name, and never to
leave.

A domain itself refuses to be pickled and shows no value (below); its arrays of values are plain
arrays.
"""


def reachable(
    name: str, thing: Any, seen: dict[int, Any], depth: int = 3
) -> Iterator[tuple[str, Any]]:
    """Go through public attributes of public objects, and of what they lead to."""
    plain = (
        ModuleType,
        type,
        FunctionType,
        MethodType,
        BuiltinFunctionType,
        str,
        int,
        float,
        bool,
        bytes,
        type(None),
    )
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
def things(
    population: Population, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("things")
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model, 1)
    with (
        Ledger(folder / "ledger.db", key=KEY, create=True) as ledger,
        warnings.catch_warnings(action="ignore"),
    ):
        recorded = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup"), ledger=ledger).fit(
            population, model, 1
        )
        recorded_result = recorded.transform(WANTED)
        sealable = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup", objective="ncp")).fit(
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
            "telling": recorded_result[0].presentation,
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
