"""Targets of attacks on models: people with outcomes, and owners who train on them."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from cfk_plugin._protect import protect
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.audit.result import AttackReport, AuditResult, Curve, Kind
from cfk_plugin.data.policy import GuaranteeName, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Interval, Part, part_contains, sorted_values, to_number, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import select
from cfk_plugin.data.values import conform
from cfk_plugin.dp.domain import infer_domains
from cfk_plugin.dp.prototypes import DPPrototypes, policy_of
from cfk_plugin.errors import (
    HostOnly,
    InputError,
    ModelError,
    quiet,
    refitting,
    require,
)
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explainer import ProtectedExplainer
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Withheld

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class Sample:
    """People drawn from one population. Host side only: its `repr` shows counts."""

    X: pd.DataFrame  # features alone, one row per person; its index becomes 0 to n - 1
    y: Mask  # whether each person's true outcome is the desired one

    def __post_init__(self) -> None:
        require("X", self.X, pd.DataFrame, "a table of features, one row per person")
        y = np.asarray(self.y, dtype=bool).reshape(-1)
        if len(y) != len(self.X):
            raise InputError(f"{len(y)} outcomes for {len(self.X)} people; give one each")
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "X", self.X.reset_index(drop=True))

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"Sample({len(self)} people, {self.X.shape[1]} features)"

    def take(self, rows: Rows | Mask) -> Sample:
        at = np.arange(len(self))[rows]
        return Sample(self.X.take(at), self.y[at])


def plain(table: pd.DataFrame) -> bool:
    """Say whether all columns are of NumPy's numbers: such a table is read as one array, however
    wide it is.
    """
    return all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in set(table.dtypes))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Answers:
    """What a service answered to a table of queries.

    Host side only: raw answers may be training rows.
    """

    rows: pd.DataFrame
    found: Mask
    explanations: Explanations | None = None

    def __repr__(self) -> str:
        return f"Answers({int(self.found.sum())} of {len(self.found)})"


class TrainedTarget(Protocol):
    """A model with an explainer, as seen by those who may ask it."""

    def confidence(self, X: pd.DataFrame) -> Floats:
        """Return the model's probability of the desired outcome, one per row, in [0, 1]."""

    def desired(self, X: pd.DataFrame) -> Mask:
        """Say for each row whether the model gives it the desired outcome."""

    def explain(self, X: pd.DataFrame) -> Answers:
        """Answer queries that have the undesired outcome."""


@runtime_checkable
class Publishing(Protocol):
    """A trained service that publishes a catalogue (optional): anybody can read it without a
    query.
    """

    def published(self) -> Explanations | None:
        """Return the published entries; None if there is no catalogue."""


class Target(Protocol):
    """An owner who trains a model on people and explains it: everything between a table and
    answers.

    Attacks train again, on other people, to learn what answers look like without somebody: so an
    owner must be a function of people and seed alone.
    """

    @property
    def name(self) -> str:
        """Short, for tables: ``nice``, ``exact``, ``dp``. May be a plain attribute."""

    def train(self, people: Sample, seed: int) -> TrainedTarget:
        """Train on these people and return what can be asked."""


@runtime_checkable
class KnownArchitecture(Protocol):
    """An owner who can name the kind of model it trains (optional).

    Attackers who copy models may know it.
    """

    def architecture(self, seed: int) -> Any:
        """Return a new, unfitted classifier of the kind that is trained, with its settings.

        It follows scikit-learn (``fit``, ``predict``, ``predict_proba``, ``classes_``) and takes a
        DataFrame with the columns and dtypes of the people.
        """


def tabular(features: pd.DataFrame, estimator: Any, numbers: Any = "passthrough") -> Pipeline:
    """Return an estimator that takes the features as they are, with text as one column per
    category.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    text = [name for name in features if not pd.api.types.is_numeric_dtype(features[name])]
    # trees take missing numbers only in a dense table
    sparse = 0.0 if features.isna().any(axis=None) else 0.3
    encode = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore"), text)],
        remainder=numbers,
        sparse_threshold=sparse,
    )
    return make_pipeline(encode, estimator)


def full_depth_forest(features: pd.DataFrame, trees: int = 50) -> Pipeline:
    """Return an unfitted random forest without any limit: it will memorize nearly everybody."""
    from sklearn.ensemble import RandomForestClassifier

    return tabular(features, RandomForestClassifier(trees, n_jobs=1))


def seeded(model: Any, seed: int) -> Any:
    from sklearn.base import clone

    copy = clone(model)
    places = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    return copy.set_params(**dict.fromkeys(places, seed))


DESIRED = True
"""The label of the desired outcome, in all models that owners train."""


class Trained(HostOnly):
    """A fitted model, and a function that answers queries with the undesired outcome."""

    def __init__(
        self,
        model: Any,
        answer: Callable[[pd.DataFrame], Answers],
        published: Callable[[], Explanations] | None = None,
    ) -> None:
        self._model = model
        self._answer = answer
        self._published = published
        self._at = list(model.classes_).index(DESIRED)

    def _counts(self) -> str:
        return type(self._model).__name__

    def confidence(self, X: pd.DataFrame) -> Floats:
        return np.asarray(self._model.predict_proba(X)[:, self._at], dtype=np.float64)

    def desired(self, X: pd.DataFrame) -> Mask:
        return np.asarray(self._model.predict(X) == DESIRED, dtype=bool)

    def explain(self, X: pd.DataFrame) -> Answers:
        if not len(X):
            return Answers(X, np.zeros(0, dtype=bool))
        return self._answer(X)

    def published(self) -> Explanations | None:
        return None if self._published is None else self._published()


def fitted(model: Any, people: Sample, seed: int) -> Any:
    """Return a copy of an estimator, fitted only on these people and this seed."""
    if people.y.all() or not people.y.any():
        raise InputError(
            f"all {len(people)} people of a training table have the same outcome; train on more of"
            " them"
        )
    copy = seeded(model, seed)
    if not hasattr(copy, "predict_proba"):
        raise ModelError(
            f"{type(copy).__name__} has no predict_proba, which attacks ask; wrap it in a"
            " calibrated one"
        )
    what = "the model cannot be fitted on the people ({}); try it on the table without an attack"
    with quiet(what, ModelError), warnings.catch_warnings():
        # of single trainings among many: not converged, an unknown category
        warnings.simplefilter("ignore")
        return copy.fit(people.X, people.y)


def read_raw(batch: CounterfactualBatch, queries: pd.DataFrame) -> Answers:
    if not np.array_equal(np.sort(batch.query), np.arange(len(queries))):
        raise InputError(_one_each(len(batch.query), len(queries)))
    row_of = np.full(len(queries), -1)
    row_of[batch.query[batch.slot]] = np.arange(len(batch.frame))
    given = select(batch.frame, list(queries.columns), renumber=False)
    given = given.reindex(row_of)  # -1 is in no index, so gives missing values
    # avoids reading thousands of columns one by one
    if plain(given) and (given.dtypes == queries.dtypes).all():
        return Answers(given.set_axis(queries.index), row_of >= 0)
    return _answers({name: given[name].tolist() for name in queries}, row_of >= 0, queries)


def read_released(explanations: Explanations, queries: pd.DataFrame) -> Answers:
    """Read, for each region, the instance nearest to the query."""
    if [entry.query for entry in explanations] != list(range(len(queries))):
        raise InputError(_one_each(len(explanations), len(queries)))
    parts = [None if isinstance(entry, Withheld) else entry.parts() for entry in explanations]
    found = np.array([part is not None for part in parts], dtype=bool)
    rows = {
        name: [
            None if said is None else nearest_inside(said[str(name)], own)
            for said, own in zip(parts, queries[name], strict=True)
        ]
        for name in queries
    }
    return _answers(rows, found, queries, explanations)


def nearest_inside(part: Part, value: Any) -> Any:
    """Return the value inside a part of a region nearest to a value: the value itself if it is
    inside.
    """
    if not isinstance(part, Interval):
        return value if part_contains(part, value) else sorted_values(part)[0]
    if part.low is None or (part.missing and pd.isna(value)):
        return None
    if part.levels is not None:
        return value if not pd.isna(value) and to_text(value) in part.levels else part.levels[0]
    if pd.isna(value):
        return part.low
    number = to_number(value)
    if number < to_number(part.low):
        return part.low
    return part.high if number > to_number(part.high) else value


def _answers(
    values: Mapping[Any, list[Any]],
    found: Mask,
    queries: pd.DataFrame,
    explanations: Explanations | None = None,
) -> Answers:
    """Combine values in the queries' own dtypes, if those can hold missing values."""
    columns = {name: pd.Series(values[name], dtype=object) for name in queries}
    rows = pd.DataFrame(
        {
            name: (
                conform(column.dropna().infer_objects(), queries[name].dtype).reindex(column.index)
            )
            for name, column in columns.items()
        }
    )
    return Answers(rows.set_axis(queries.index), found, explanations)


def _one_each(given: int, asked: int) -> str:
    return (
        f"{given} counterfactuals for {asked} queries; attacks read one per query, so ask the"
        " explainer for one each"
    )


class ExplainerFactory(Protocol):
    """Makes an explainer for a trained model."""

    def __call__(
        self, train: pd.DataFrame, labels: Mask, model: Any, desired: Any, seed: int
    ) -> Any:
        """Return anything that `protect` can wrap: an explainer that a plugin knows, or a
        callable.
        """


def adapted(
    explainer: ExplainerFactory, people: Sample, model: Any, seed: int, features: Iterable[str]
) -> Any:
    made = explainer(people.X, people.y, model, DESIRED, seed)
    return load_plugins().adapt(made, AdaptContext(tuple(features), None))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answering:
    """What a trained model is explained by. Host side only."""

    # from queries, numbered from 0 and as given, to answers
    answer: Callable[[pd.DataFrame, pd.DataFrame], Answers]
    published: Callable[[], Explanations] | None = None


class _ModelOwner(ABC):
    """An owner who trains a classifier, cloned and seeded for every training; subclasses only
    answer differently.
    """

    __slots__ = ()
    name: str
    model: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def policy(self) -> Mapping[str, Any] | None:
        """Settings of the protection, for reports; None if there is none."""
        return None

    def architecture(self, seed: int) -> Any:
        return seeded(self.model, seed)

    def train(self, people: Sample, seed: int) -> TrainedTarget:
        model = fitted(self.model, people, seed)
        with refitting():
            explained = self._answering(model, people, seed)

        def answer(queries: pd.DataFrame) -> Answers:
            return explained.answer(queries.reset_index(drop=True), queries)

        return Trained(model, answer, explained.published)

    @abstractmethod
    def _answering(self, model: Any, people: Sample, seed: int) -> Answering: ...


@dataclass(frozen=True, slots=True, repr=False)
class RawOwner(_ModelOwner):
    """Trains a model and answers with raw counterfactuals, without any protection."""

    name: str
    model: Any
    explainer: ExplainerFactory

    def _answering(self, model: Any, people: Sample, seed: int) -> Answering:
        source = adapted(self.explainer, people, model, seed, people.X.columns)
        return Answering(lambda asked, queries: read_raw(source.generate(asked), queries))


@dataclass(frozen=True, slots=True, repr=False)
class ProtectedOwner(_ModelOwner):
    """Trains a model and answers with what `protect` releases, or from a catalogue without an
    explainer.
    """

    name: str
    model: Any
    explainer: ExplainerFactory | None  # None needs ``guarantee="catalogue"``
    # kinds and domains of columns are then read from each training table
    quasi_identifiers: tuple[str, ...] = ()
    schema: Schema | None = None  # one for all trainings, instead of `quasi_identifiers`
    rules: PrivacyPolicy = field(default_factory=PrivacyPolicy)
    method: str = "auto"

    def __post_init__(self) -> None:
        if (self.schema is None) == (not self.quasi_identifiers):
            raise InputError(
                f"owner {self.name!r}: give quasi_identifiers or a schema, one of both"
            )
        if self.explainer is None and promise_of(self.rules.guarantee).releases_counterfactuals:
            raise InputError(
                f'owner {self.name!r}: answers without an explainer need guarantee="catalogue"'
            )

    @property
    def policy(self) -> Mapping[str, Any]:
        return self.rules.to_dict()

    def schema_of(self, people: Sample) -> Schema:
        return self.schema or Schema.from_frame(people.X, quasi_identifiers=self.quasi_identifiers)

    def _answering(self, model: Any, people: Sample, seed: int) -> Answering:
        population = Population.from_frame(people.X, self.schema_of(people))
        anonymizer = KAnonymizer(policy=self.rules, method=self.method, random_state=seed)
        asked: KAnonymizer | ProtectedExplainer = anonymizer
        published = None
        if promise_of(self.rules.guarantee).can_be_published:
            anonymizer.fit(population, model=model, desired=DESIRED)
            published = anonymizer.published
        if self.explainer is not None:
            explainer = self.explainer(people.X, people.y, model, DESIRED, seed)
            asked = protect(
                explainer,
                model=model,
                population=population,
                desired=DESIRED,
                method=clone(anonymizer),
            )
        return Answering(
            lambda rows, queries: read_released(asked.explain(rows), queries), published
        )


@dataclass(frozen=True, slots=True, repr=False)
class PrototypeOwner(_ModelOwner):
    """Trains a model without noise, and answers with rows of a differentially private model of the
    people.
    """

    name: str
    model: Any
    # declares every feature's public domain; `measured_schema` reads them, for measuring
    schema: Schema
    epsilon: float = 1.0  # this and the following: for each training; see `DPPrototypes`
    delta: float = 0.0
    move_towards_query: bool = False
    plausibility: float | None = None
    rows: int = 60_000
    # Seeds the noise by the training's seed, for tests: the owner is then a function of people and
    # seed, and nothing is guaranteed. Otherwise the noise comes from the operating system, as in
    # production.
    repeatable: bool = False

    def __post_init__(self) -> None:
        policy_of(self._prototypes(0))  # refuses settings that are out of range

    @property
    def policy(self) -> Mapping[str, Any]:
        return policy_of(self._prototypes(0)).to_dict()

    def _answering(self, model: Any, people: Sample, seed: int) -> Answering:
        population = Population.from_frame(people.X, self.schema)
        prototypes = self._prototypes(seed).fit(population, model=model, desired=DESIRED)
        return Answering(lambda asked, queries: read_released(prototypes.explain(asked), queries))

    def _prototypes(self, seed: int) -> DPPrototypes:
        noise = seed if self.repeatable else None
        return DPPrototypes(
            self.epsilon,
            delta=self.delta,
            rows=self.rows,
            plausibility=self.plausibility,
            move_towards_query=self.move_towards_query,
            random_state=noise,
        )


def measured_schema(people: Sample, quasi_identifiers: Sequence[str]) -> Schema:
    """Read domains from a whole sample, only for measuring: what is fitted with it guarantees
    nothing.
    """
    with refitting():  # certificates state that domains were read
        return infer_domains(
            people.X, Schema.from_frame(people.X, quasi_identifiers=quasi_identifiers)
        )


def check_sample(sample: object) -> None:
    require("sample", sample, Sample, "make one of features and true outcomes, Sample(X, y)")


GUARANTEES: Mapping[str, GuaranteeName] = {
    "exact": "lookup",
    "catalogue": "catalogue",
}


def protected_owner(
    name: str, model: Any, explainer: ExplainerFactory, rules: PrivacyPolicy, **columns: Any
) -> ProtectedOwner:
    """Return the owner for a guarantee of `GUARANTEES`; a catalogue answers without the
    explainer.
    """
    guarantee = GUARANTEES[name]
    needs_explainer = promise_of(guarantee).releases_counterfactuals
    own_explainer = explainer if needs_explainer else None
    rules = rules.with_guarantee(guarantee)
    return ProtectedOwner(name, model, own_explainer, rules=rules, **columns)


def standard_owners(
    sample: Sample,
    model: Any,
    explainers: Mapping[str, ExplainerFactory],
    quasi_identifiers: Sequence[str],
    *,
    protects: str | None = None,
    k: int = 10,
    epsilon: float = 1.0,
    schema: Schema | None = None,
    repeatable: bool = False,
) -> list[Target]:
    """Return one owner per way of answering; all train the same model on columns like the sample's.

    Raw ones, named as their explainers; ``exact`` (lookup); ``catalogue``, which
    answers queries without an explainer; ``dp`` and ``dp-moved``.

    Parameters
    ----------
    model : scikit-learn classifier or pipeline
        Not fitted; takes a DataFrame.
    protects : str, optional
        The explainer whose answers are protected. Default: the first.
    k, epsilon
        For the guarantees, in every training.
    schema : Schema, optional
        Declares public domains. Default: `measured_schema`, with which nothing is guaranteed.
    repeatable : bool
        See `PrototypeOwner`.
    """
    if not explainers or (protects is not None and protects not in explainers):
        raise InputError(
            "`protects` must be one of the explainers given:"
            f" {', '.join(explainers) or 'there is none'}"
        )
    found, quasi = explainers[protects or next(iter(explainers))], tuple(quasi_identifiers)
    domains, rules = schema or measured_schema(sample, quasi), PrivacyPolicy(k=k)
    protected = [
        protected_owner(name, model, found, rules, quasi_identifiers=quasi) for name in GUARANTEES
    ]
    prototypes = [
        PrototypeOwner(
            name,
            model,
            domains,
            epsilon,
            move_towards_query=move_towards_query,
            repeatable=repeatable,
        )
        for name, move_towards_query in (("dp", False), ("dp-moved", True))
    ]
    return [
        *(RawOwner(name, model, explainer) for name, explainer in explainers.items()),
        *protected,
        *prototypes,
    ]


Found = Mapping[str, NDArray[Any]]
"""What an attack found: arrays of numbers by name, such as distances or scores; never a row."""


def report_on(
    owner: Target,
    kind: Kind,
    results: Iterable[AuditResult],
    settings: Mapping[str, str | int | float | bool],
    *,
    started: float,
    curves: Mapping[str, Curve] | None = None,
) -> AttackReport:
    """Return the report of an attack on an owner that began at a time of `time.perf_counter`."""
    return AttackReport(
        kind=kind,
        subject=owner.name,
        results=tuple(results),
        settings=settings,
        curves=curves or {},
        policy=getattr(owner, "policy", None),
        seconds=time.perf_counter() - started,
    )


def compare(
    owners: Sequence[Target], sample: Sample, attack: Callable[..., AttackReport], **sizes: Any
) -> list[AttackReport]:
    """Run one attack on several owners with different names, trained on the same people with the
    same seed.

    The people trained on and asked about must depend on the sample and `sizes` alone, as in all
    attacks here.
    """
    if len({owner.name for owner in owners}) != len(owners):
        raise InputError("two owners have the same name; reports could not be told apart")
    return [attack(owner, sample, **sizes) for owner in owners]
