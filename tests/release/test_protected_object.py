"""The protected explainer and what it gives out: nothing but what an adapter names."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import json
import pickle
import pprint
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping
from types import (
    MappingProxyType,
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
    Attribute,
    GeneralizedCounterfactual,
    Interval,
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
    """An explainer that returns training rows, and has them as attributes and in its `repr`."""

    def __init__(self) -> None:
        self.data, self.model = TRAIN.copy(), SimpleNamespace(fitted_on=TRAIN)

    def explain(self, queries: Any) -> pd.DataFrame:
        return WANTED.head(len(queries))

    def get_counterfactuals(self, queries: Any) -> pd.DataFrame:
        return WANTED

    def __repr__(self) -> str:
        return TRAIN.to_string()

    def _repr_html_(self) -> str:
        return TRAIN.to_html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": TRAIN.to_html()}


REFUSED = ["get_counterfactuals", "data", "model", "__wrapped__", "_repr_mimebundle_"]


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


def declared() -> Population:
    """Return a population of which everything is declared, as differential privacy needs it."""
    numbers = TRAIN[["age", "pay"]]
    schema = Schema.from_frame(
        numbers,
        quasi_identifiers=["age"],
        columns={"age": Attribute(bounds=(700e6, 800e6)), "pay": Attribute(bounds=(800e6, 900e6))},
        nullable=[],
    )
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


def test_forwarded_names_are_given_as_they_are(population: Population) -> None:
    private = private_of(Told(), population, plugins=[Presentation()])
    assert (private.version, private.threshold) == ("1.2", 0.5)
    assert private.describe(words="so") == "so"
    assert {"version", "threshold", "describe", "explain"} <= set(dir(private))
    for name in ("broken", "absent"):
        with pytest.raises(NotForwardedError, match="cannot be read") as failed:
            getattr(private, name)
        assert not found_in(str(failed.value))
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
    "majority", "ncp_parts", "disclosure", "refused_k",
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
def results(population: Population) -> dict[str, Any]:
    """Return explanations of the catalogue, and of groups of people."""
    private = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population)
    policy = PrivacyPolicy(k=5, guarantee="lookup")
    of_groups = private_of(NearestUnlikeNeighbour(TRAIN, model, 1), population, policy=policy)
    return {"catalogue": private.explain(QUERIES), "groups": of_groups.explain(QUERIES)}


def test_an_entry_shows_what_may_leave_and_the_data_holder_has_every_count(
    results: dict[str, Any],
) -> None:
    withheld = Withheld(0, "infeasible", refused_k=3)
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
            with pytest.raises(CFKError, match="refuses to be pickled"):
                dump(thing)
    withheld = Withheld(2, "infeasible", ("age",), refused_k=3)
    there = pickle.loads(pickle.dumps(withheld))
    assert (there, there.refused_k) == (withheld, None)
    assert copy.copy(entry.recount) is copy.deepcopy(entry.recount) is entry.recount
    assert copy.deepcopy(entry) == entry


def test_a_withheld_explanation_cannot_be_changed_and_its_state_has_no_count() -> None:
    withheld = Withheld(2, "infeasible", ("age",), refused_k=3)
    assert withheld.__getstate__() == (2, "infeasible", ("age",))
    assert withheld == Withheld(2, "infeasible", ("age",), refused_k=4)
    assert hash(withheld) == hash(Withheld(2, "infeasible", ("age",)))
    assert withheld != Withheld(2, "infeasible")
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
