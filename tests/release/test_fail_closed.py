"""No raw counterfactual leaves, regardless of what models, explainers, adapters and plugins do."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

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
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.errors import AdapterError, CFKError, InputError, ModelError, PluginError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, ReleaseRecord

K = 5
LEVELS = ["low", "mid", "high"]
CITIES = ["Antwerp", "Bruges", "Ghent", "Namur"]
N_PEOPLE = 90
RANDOM = np.random.default_rng(7)
TRAIN = pd.DataFrame(
    {
        # Unique and unusual, so that a test recognises a raw age in any output.
        "age": 71_003 + 17 * RANDOM.permutation(N_PEOPLE),
        "city": RANDOM.choice(CITIES, N_PEOPLE),
        "education": RANDOM.choice(LEVELS, N_PEOPLE),
        "pay": RANDOM.integers(20, 90, N_PEOPLE),
    }
)
SCHEMA = Schema.from_frame(
    TRAIN, quasi_identifiers=["age", "city", "education"], ordinal={"education": LEVELS}
)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
RAW = TRAIN[TRAIN["pay"] > 40].head(3).reset_index(drop=True)
QUERIES = TRAIN[TRAIN["pay"] <= 40].head(3)
SECRET = f"cannot explain {RAW.to_dict('records')}"
POLICIES = {name: PrivacyPolicy(guarantee=name, k=K) for name in ("lookup", "catalogue")}
EVERYWHERE = {
    "age": Interval(int(TRAIN["age"].min()), int(TRAIN["age"].max())),
    "city": frozenset(CITIES),
    "education": Interval("low", "high", levels=tuple(LEVELS)),
}


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


def fitted(classifier: Any = model, **settings: Any) -> KAnonymizer:
    desired = settings.pop("desired", 1)
    anonymizer = KAnonymizer(policy=POLICIES["lookup"], **settings)
    return anonymizer.fit(POPULATION, model=classifier, desired=desired)


def private(explainer: Any, **settings: Any) -> Any:
    defaults = {"model": model, "policy": POLICIES["lookup"], "desired": 1}
    return protect(explainer, population=POPULATION, **defaults | settings)


def assert_no_raw_age(*texts: Any) -> None:
    text = " ".join(map(str, texts))
    assert not [age for age in RAW["age"] if str(age) in text]


def assert_withheld(explanations: Explanations, reason: str) -> None:
    """Check that every explanation is withheld, and that no form of the result has a raw age."""
    assert [entry.reason for entry in explanations.withheld] == [reason] * len(RAW)
    assert_no_raw_age(
        repr(explanations),
        explanations.to_json(),
        explanations.audit_frame().to_csv(),
        [*explanations],
        explanations.provenance,
    )


class Hook:
    """A plugin with one hook."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


class Liar:
    """A protector that answers as a test wants."""

    name = "liar"

    def __init__(self, answer: Callable[[ProtectionRequest], Any]) -> None:
        self.protect = answer


def transformed(answer: Callable[[ProtectionRequest], Any]) -> Explanations:
    return fitted(method=Liar(answer)).transform(RAW)


# --- protectors that lie --------------------------------------------------------------------------


def raw_row(i: int = 0) -> dict[str, Any]:
    return RAW.iloc[i].to_dict()


def raw_region(i: int = 0) -> Region:
    row = raw_row(i)
    level = row["education"]
    return Region(
        {
            "age": Interval(row["age"], row["age"]),
            "city": frozenset({row["city"]}),
            "education": Interval(level, level, levels=(level,)),
        }
    )


LIES: dict[str, Callable[[int], Any]] = {  # malformed parts: test_rebuilt_proposals.py
    "the raw row": raw_region,
    "the raw row as a dict": raw_row,
    "people elsewhere": lambda i: Region(EVERYWHERE | {"age": Interval(RAW["age"].max() + 1, 10**6)}),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lying_region_is_withheld(lie: str) -> None:
    """Whatever the protector claims of it."""
    proposals = [Proposal(LIES[lie](i), optimal=True, gap=0.0) for i in range(len(RAW))]
    assert_withheld(transformed(lambda request: proposals), "verification_failed")


@pytest.mark.parametrize(("n_people", "is_released"), [(K - 1, False), (K, True)])
def test_region_needs_k_people(n_people: int, is_released: bool) -> None:
    """The protector's claim is not believed: people are counted again."""
    ages = np.sort(TRAIN["age"]).tolist()
    youngest = TRAIN[TRAIN["pay"] > 40].nsmallest(1, "age")
    proposal = Proposal(Region(EVERYWHERE | {"age": Interval(ages[0], ages[n_people - 1])}))
    result = fitted(method=Liar(lambda request: [proposal])).transform(youngest)
    assert [entry.recount.k for entry in result.generalized] == [n_people] * is_released


WHOLE = Proposal(Region(EVERYWHERE))
NO_ANSWERS: dict[str, Callable[[int], Any]] = {
    "too few": lambda n: [WHOLE] * (n - 1),
    "too many": lambda n: [WHOLE] * (n + 1),
    "a short generator": lambda n: (Proposal(raw_region(i)) for i in range(n - 1)),
    "a subclass": lambda n: [type("Talking", (Proposal,), {"__slots__": ()})(WHOLE.region)] * n,
    "None": lambda n: None,
    "a table": lambda n: RAW,
}


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_malformed_proposals_are_withheld(answer: str) -> None:
    """One proposal for each counterfactual is expected."""
    result = transformed(lambda request: NO_ANSWERS[answer](len(request)))
    assert_withheld(result, "protector_failed")


def test_proposal_without_region_is_infeasible() -> None:
    """A protector may find that no region is allowed."""
    assert_withheld(transformed(lambda request: [Proposal(None)] * len(request)), "infeasible")


@pytest.mark.parametrize("name", ["exact", None, ["exact"]])
def test_protector_needs_its_own_name(name: Any) -> None:
    """The certificate states it."""
    liar = Liar(lambda request: [WHOLE] * len(request))
    liar.name = name
    with pytest.raises(InputError, match="name"):
        fitted(method=liar)


def test_plugin_cannot_replace_exact() -> None:
    """A registered protector with the name of ours is not used."""
    raw = Liar(lambda request: [Proposal(raw_region())] * len(request))
    plugin = Hook("register_protectors", lambda: {"exact": lambda: raw, "mine": lambda: raw})
    assert len(fitted(plugins=[plugin]).transform(RAW).released) == len(RAW)
    mine = fitted(method="mine", plugins=[plugin]).transform(RAW)
    assert_withheld(mine, "verification_failed")


def test_protector_cannot_lower_k() -> None:
    """What it gets is its own copy."""

    def vandalise(request: ProtectionRequest) -> list[Proposal]:
        request.rows[:] = 0.0
        object.__setattr__(request.policy, "k", 1)
        return [Proposal(raw_region(i)) for i in range(len(request))]

    assert_withheld(transformed(vandalise), "verification_failed")


# --- detectors and listeners ----------------------------------------------------------------------


def test_population_is_read_only() -> None:
    """A plugin gets the table with which people are counted again."""
    for array in (POPULATION.coded_rows, POPULATION.row_codes.columns[0].values):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = array[::-1]


def test_detector_cannot_hide_native_rows() -> None:
    """It may change its copy of the rows, and its findings only add to ours."""

    def vandalise(frame: pd.DataFrame, population: Population) -> Any:
        frame.loc[:, "age"] = 0
        people = population.frame
        people.loc[:, "age"] = 0
        return [None, "synthetic", type("Loud", (str,), {})("native")]

    rows = RAW.copy(deep=True)
    result = fitted(plugins=[Hook("detect", vandalise)]).transform(rows)
    assert result == fitted().transform(RAW)
    assert result.findings == ("native",) * len(RAW)
    assert {type(finding) for finding in result.findings} == {str}
    pd.testing.assert_frame_equal(rows, RAW)


@pytest.mark.parametrize("findings", [["native"], [str(raw_row())] * len(RAW), [["native"]] * 3, 7])
def test_malformed_findings_withhold_everything(findings: Any) -> None:
    """One known finding, or None, is expected for each row."""
    plugin = Hook("detect", lambda: findings)
    assert_withheld(fitted(plugins=[plugin]).transform(RAW), "protector_failed")


def test_listener_hears_only_figures() -> None:
    """A listener that fails does not keep another one from its records."""
    records: list[ReleaseRecord] = []

    def listen(record: ReleaseRecord) -> None:
        records.append(record)

    deaf = Hook("released", raising(ValueError(SECRET)))
    result = fitted(plugins=[Hook("released", listen), deaf]).transform(RAW)
    assert [record.k for record in records] == [e.certificate.k for e in result.generalized]
    assert_no_raw_age(records)


# --- errors ---------------------------------------------------------------------------------------


class PanicException(BaseException):
    """Stands for PyO3's, with which libraries written in Rust end a call: not an `Exception`."""


class NotANameError(Exception):
    """An exception whose class has a row for a name."""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


NotANameError.__name__ = SECRET
ERRORS: list[type[BaseException]] = [
    ValueError,
    SystemExit,
    PanicException,
    StopIteration,
    NotANameError,
    UnprintableError,
]


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error from KeyError(SECRET)

    return fail


class Source:
    """An adapter, some parts of which may fail."""

    name = "third party"
    instance_based = True

    def __init__(self, **parts: Any) -> None:
        self.methods = {"counterfactuals": lambda queries: (self.generate(queries), RAW, queries)}
        for name, part in parts.items():
            setattr(self, name, part)

    def generate(self, queries: pd.DataFrame) -> Any:
        is_answered = np.ones(len(queries), dtype=bool)
        return CounterfactualBatch.one_each(RAW.head(len(queries)), is_answered)

    def restore(self, native: Any, explanations: Explanations) -> Any:
        return explanations.to_frame()


class Explainer:
    """Only the adapters of these tests can ask it."""

    def __repr__(self) -> str:
        return SECRET


def adapted(source: Any, **settings: Any) -> Any:
    return private(Explainer(), plugins=[Hook("adapt", lambda: source)], **settings)


def asked(source: Any) -> Any:
    """Call the method that an adapter maps."""
    return adapted(source).counterfactuals(QUERIES)


CALLS: dict[str, Callable[[Any], Any]] = {
    "the explainer": lambda fail: private(fail).explain(QUERIES),
    "the adapter": lambda fail: adapted(Source(generate=fail)).explain(QUERIES),
    "restore for a method": lambda fail: asked(Source(restore=fail)),
    "a method": lambda fail: asked(Source(methods={"counterfactuals": fail})),
    "the model in fit": fitted,
    "the goal in fit": lambda fail: fitted(desired=fail),
    "adapting in fit": lambda fail: private(Explainer(), plugins=[Hook("adapt", fail)]),
    "registering in fit": lambda fail: fitted(plugins=[Hook("register_protectors", fail)]),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", CALLS)
def test_error_refuses_the_call(
    place: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Our error names the class of the foreign one, and quotes nothing of it."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CFKError) as caught:
        CALLS[place](raising(error(SECRET)))
    class_name = "an error" if error is NotANameError else error.__name__
    assert class_name in str(caught.value)
    assert_no_raw_age(caught.value, caplog.text)


@pytest.mark.parametrize("error", [*ERRORS, InputError, ModelError])
@pytest.mark.parametrize("place", ["model", "detect", "protector"])
def test_error_withholds_every_answer(
    place: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is raised after the fit, the call returns."""
    caplog.set_level(logging.DEBUG)
    fail = raising(error(SECRET))
    is_fitted = False
    settings: dict[str, Any] = {
        "model": {"model": lambda rows: fail() if is_fitted else model(rows)},
        "detect": {"plugins": [Hook("detect", fail)]},
        "protector": {"method": Liar(fail)},
    }[place]
    explainer = private(lambda rows: RAW, **settings)
    is_fitted = True
    is_of_model = place == "model" or (place == "protector" and error is ModelError)
    reason = "model_failed" if is_of_model else "protector_failed"
    assert_withheld(explainer.explain(QUERIES), reason)
    assert_no_raw_age(caplog.text)


RAW_SOURCES: dict[str, Any] = {
    "a row": raw_row(),
    "rows as a method's batch": Source(methods={"counterfactuals": lambda _: (RAW, RAW, QUERIES)}),
    "rows as a batch": Source(generate=lambda queries: RAW),
    "the native result": Source(restore=lambda native, explanations: native),
}


@pytest.mark.parametrize("source", RAW_SOURCES)
def test_adapter_must_not_return_rows(source: str) -> None:
    """Neither as a batch nor as the result of a method."""
    with pytest.raises((AdapterError, PluginError)) as caught:
        asked(RAW_SOURCES[source])
    assert_no_raw_age(caught.value)


BATCHES = [
    (RAW, range(3), [0, 1, 99]),
    (RAW, [0, 0, 0], range(3)),
    (RAW, range(2), range(3)),
    (RAW.T, range(4), range(4)),
]


@pytest.mark.parametrize(("rows", "query", "slots"), BATCHES)
def test_malformed_batch_is_refused(rows: Any, query: Any, slots: Any) -> None:
    """Every row of a batch has a slot, and every slot a query."""

    def generate(queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch(rows, np.array(query), np.array(slots))

    with pytest.raises((AdapterError, InputError)) as caught:
        adapted(Source(generate=generate)).explain(QUERIES)
    assert_no_raw_age(caught.value)


def test_catalogue_refuses_an_unknown_method() -> None:
    """An adapter must say how an answer is put in the place of its explainer's."""
    explainer = adapted(Source(), policy=POLICIES["catalogue"])
    with pytest.raises(AdapterError, match="use explain"):
        explainer.counterfactuals(QUERIES)


def test_interrupt_of_the_operator_passes() -> None:
    """It is not taken for a failure of the explainer."""
    with pytest.raises(KeyboardInterrupt):
        private(raising(KeyboardInterrupt())).explain(QUERIES)


def test_error_has_its_foreign_cause() -> None:
    """The data holder sees in the traceback where the foreign code failed."""
    with pytest.raises(CFKError) as caught:
        private(raising(ValueError(SECRET))).explain(QUERIES)
    cause = caught.value.__cause__
    assert type(cause) is ValueError
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "fail"


# --- models that answer badly ---------------------------------------------------------------------

BROKEN_MODELS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "one label too few": lambda rows: model(rows)[:-1],
    "None": lambda rows: None,
    "probabilities": lambda rows: 0.2 + model(rows) * 0.6,
    "missing labels": lambda rows: np.where(np.arange(len(rows)) == 0, np.nan, 1),
    "ragged": lambda rows: [[1]] * (len(rows) - 1) + [[1, 2]],
    "the rows themselves": lambda rows: rows,
}


class Fragile:
    """A model that works for some calls and is broken afterwards."""

    def __init__(self, broken: Callable[[pd.DataFrame], Any], n_calls: int = 10**6) -> None:
        self.broken = broken
        self.n_calls = n_calls

    def predict(self, rows: pd.DataFrame) -> Any:
        self.n_calls -= 1
        return model(rows) if self.n_calls >= 0 else self.broken(rows)


@pytest.mark.parametrize("desired", [1, "opposite"])
@pytest.mark.parametrize("kind", BROKEN_MODELS)
def test_broken_model_releases_nothing(kind: str, desired: Any) -> None:
    """Before the fit it is refused, and after it every answer is withheld."""
    with pytest.raises(ModelError) as caught:
        fitted(BROKEN_MODELS[kind], desired=desired)
    assert_no_raw_age(caught.value)
    fragile = Fragile(BROKEN_MODELS[kind])
    anonymizer = fitted(fragile, desired=desired)
    fragile.n_calls = 0
    assert_withheld(anonymizer.transform(RAW), "model_failed")


@pytest.mark.parametrize("guarantee", POLICIES)
def test_model_breaking_at_any_call_withholds(guarantee: str) -> None:
    """No answer depends on part of the model's labels."""
    fragile = Fragile(lambda rows: model(rows)[:-1])
    explainer = private(lambda rows: RAW, model=fragile, policy=POLICIES[guarantee])
    for n_calls in range(20):
        fragile.n_calls = n_calls
        explanations = explainer.explain(QUERIES)
        if fragile.n_calls >= 0:
            break
        assert_withheld(explanations, "model_failed")
    assert n_calls > 0
    assert len(explanations.released) == len(RAW)


class Classifier(Fragile):
    classes_ = np.array([0, 1])


@pytest.mark.parametrize(
    ("kind", "reason"), [(Fragile, "not_desired"), (Classifier, "model_failed")]
)
def test_new_label_is_withheld(kind: type[Fragile], reason: str) -> None:
    """A model with classes that returns another label is broken."""
    classifier = kind(lambda rows: np.full(len(rows), 7), n_calls=1)
    assert_withheld(fitted(classifier).transform(RAW), reason)
