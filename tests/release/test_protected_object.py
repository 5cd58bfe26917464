"""A protected explainer and its results give out only what an adapter or a certificate names."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Explanations,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
    hookimpl,
    protect,
)
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.errors import AdapterError, CFKError, NotForwardedError

# --- a table whose values occur once, and nowhere else by chance ----------------------------------

N_PEOPLE = 60
RANDOM = np.random.default_rng(5)
TRAIN = pd.DataFrame(
    {
        "age": 730_000_019 + 7_919 * RANDOM.permutation(N_PEOPLE),
        "town": [f"CANARY-TOWN-{i:03d}" for i in range(N_PEOPLE)],
        "pay": 860_000_011 + 104_729 * RANDOM.permutation(N_PEOPLE),
    }
)
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "town"], sensitive=["pay"])
)
CUT = int(TRAIN["pay"].median()) + 17
QUERIES = TRAIN[TRAIN["pay"] <= CUT].head(3)
ACCEPTED = TRAIN[TRAIN["pay"] > CUT].head(3)
POLICY = PrivacyPolicy(guarantee="lookup", k=5)


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"].to_numpy(dtype=float) > CUT).astype(int)


def private(explainer: Any, **settings: Any) -> Any:
    defaults = {"model": model, "population": POPULATION, "policy": POLICY, "desired": 1}
    return protect(explainer, **defaults | settings)


def values_in(text: str, released: str = "") -> list[str]:
    """Return the values of other people that a text has and a released explanation has not."""
    values = TRAIN.drop(QUERIES.index).astype(str).to_numpy().ravel()
    return [value for value in values if value in text and value not in released]


# --- names ----------------------------------------------------------------------------------------


class Rows:
    """An explainer that shows training rows wherever it can."""

    version = "1.2"
    data = TRAIN

    def __init__(self) -> None:
        self.model = SimpleNamespace(fitted_on=TRAIN)

    def explain(self, queries: Any) -> pd.DataFrame:
        return ACCEPTED.head(len(queries))

    def get_counterfactuals(self, queries: Any) -> pd.DataFrame:
        return ACCEPTED

    def describe(self, words: str = "rows") -> str:
        return words

    def fail(self) -> None:
        raise SystemExit(f"age={TRAIN['age'].iloc[5]}")

    @property
    def broken(self) -> None:
        raise ValueError(f"age={TRAIN['age'].iloc[5]}")

    def __repr__(self) -> str:
        return TRAIN.to_string()

    def _repr_html_(self) -> str:
        return TRAIN.to_html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": TRAIN.to_html()}


class Source:
    """An adapter that forwards some names and maps no method."""

    name = "forwarding"
    instance_based = True
    methods: dict[str, Any] = {}  # noqa: RUF012
    forwarded = ("version", "describe", "fail", "broken", "absent")

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch.one_each(ACCEPTED, np.ones(len(queries), dtype=bool))

    def restore(self, native: Any, explanations: Any) -> None: ...


class Plugin:
    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        return Source() if isinstance(explainer, Rows) else None


@pytest.fixture(scope="module")
def forwarding() -> Any:
    return private(Rows(), plugins=[Plugin()])


@pytest.mark.parametrize(
    "name", ["get_counterfactuals", "data", "model", "__wrapped__", "_repr_mimebundle_"]
)
def test_unmapped_name_is_refused(name: str) -> None:
    """For Python it is an attribute that is missing; the text says how to add it."""
    explainer = private(Rows())
    with pytest.raises(NotForwardedError, match="write-an-adapter") as caught:
        getattr(explainer, name)
    assert isinstance(caught.value, CFKError)
    assert not hasattr(explainer, name)
    assert not values_in(str(caught.value))


def test_forwarded_names_are_unchanged(forwarding: Any) -> None:
    """An adapter forwards some names; without methods, there is `explain` and nothing else."""
    assert forwarding.version == "1.2"
    assert forwarding.describe(words="so") == "so"
    assert {"version", "describe", "explain"} <= {*dir(forwarding)}
    assert len(forwarding.explain(QUERIES).released) == len(QUERIES)
    assert not hasattr(forwarding, "get_counterfactuals")


@pytest.mark.parametrize("name", ["broken", "absent", "fail"])
def test_failing_forwarded_name_has_no_value(name: str, forwarding: Any) -> None:
    """A property or a method of the explainer may fail with a row in its text."""
    with pytest.raises((AdapterError, NotForwardedError), match=name) as caught:
        getattr(forwarding, name)()
    assert not values_in(str(caught.value))


# --- what is shown --------------------------------------------------------------------------------

COUNTS = ["k_desired", "k_consistent", "k_effective", "k_private", "private_matches", "majority"]
INNER = [*COUNTS, "ncp_parts", "disclosure", "refused_k"]


def by_ipython(thing: Any) -> str:
    formatters = pytest.importorskip("IPython.core.formatters", reason="needs the extra [dev]")
    return json.dumps(formatters.DisplayFormatter().format(thing), default=str)


def by_rich(thing: Any) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=400)
    console.print(thing)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


PRINTERS: list[Callable[[Any], str]] = [repr, by_rich, by_ipython]


@pytest.mark.parametrize("printer", PRINTERS)
def test_explainer_shows_only_itself(printer: Callable[[Any], str]) -> None:
    """Not the explainer inside, nor its rows."""
    text = printer(private(Rows()))
    assert "ProtectedExplainer" in text
    assert not values_in(text)


@pytest.fixture(scope="module")
def explanations() -> Explanations:
    result: Explanations = private(NearestUnlikeNeighbour(TRAIN, model, 1)).explain(QUERIES)
    return result


@pytest.mark.parametrize("printer", PRINTERS)
def test_entry_shows_no_inner_count(
    printer: Callable[[Any], str], explanations: Explanations
) -> None:
    """They are the data holder's: the recipient learns k, NCP and pureness."""
    entry = explanations.generalized[0]
    withheld = Withheld(0, "infeasible", refused_k=3)
    text = " ".join(map(printer, [entry, entry.certificate, [entry], withheld]))
    assert not [name for name in INNER if name in text]
    assert not values_in(text, released=explanations.to_json())


def test_data_holder_has_every_count(explanations: Explanations) -> None:
    """They are in the recount, in the table for an audit, and of a withheld explanation."""
    recount = explanations.generalized[0].recount
    assert {*COUNTS} <= {*recount.to_dict()} & {*explanations.audit_frame()}
    assert recount.k_private is not None
    assert Withheld(0, "infeasible", refused_k=3).refused_k == 3


def test_entry_with_counts_cannot_be_pickled(explanations: Explanations) -> None:
    """Its certificate can."""
    entry = explanations.generalized[0]
    for thing in (entry, entry.recount, [entry]):
        with pytest.raises(CFKError, match="pickled"):
            pickle.dumps(thing)
    assert pickle.loads(pickle.dumps(entry.certificate)) == entry.certificate
    assert copy.deepcopy(entry) == entry


def test_withheld_travels_without_its_count() -> None:
    """It is no part of what a withheld explanation says."""
    withheld = Withheld(2, "infeasible", ("age",), refused_k=3)
    unpickled = pickle.loads(pickle.dumps(withheld))
    assert unpickled == withheld == Withheld(2, "infeasible", ("age",), refused_k=4)
    assert unpickled.refused_k is None
    assert hash(unpickled) == hash(withheld)
