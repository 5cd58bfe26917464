"""The model as it is asked: checked labels, the goal of an explanation, and an oracle that asks
each cell once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.decision import (
    DecisionRule,
    Floats,
    Probabilities,
    ProbabilityThreshold,
    probabilities_of,
)
from cfk_plugin.data.domain import UNKNOWN, Codes, Rows
from cfk_plugin.data.encoded_table import (
    COPIES_EAGERLY,
    FEW,
    EncodedTable,
    Encoder,
    divided,
    select,
    table_of,
)
from cfk_plugin.data.outcome import DesiredOutcome, OutcomeTest
from cfk_plugin.data.policy import Mask, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, Predictions, Requirement
from cfk_plugin.data.region import Region
from cfk_plugin.data.values import conform
from cfk_plugin.errors import (
    HostOnly,
    ModelError,
    PolicyError,
    listed,
    quiet,
)

Labels = NDArray[Any]

MOST_CELLS = 10_000  # value combinations of a region; up to these, the model is asked about all
SAMPLED = 2_000  # number drawn if there are more


class LabelModel:
    """A model as protection needs it: one checked label per row, and no error text that quotes
    rows.
    """

    def __init__(
        self, model: Any, features: Sequence[str], goal: DesiredOutcome | None = None
    ) -> None:
        with quiet(
            "the model cannot be read: asking for its attributes raised {}",
            ModelError,
            let=ModelError,
        ):
            self._predict = predict_of(model)
            self.columns = _columns_of(
                model.model if isinstance(model, Thresholded) else model, features
            )
            self._form = ModelForm.of(model)
            self._probabilities = _probabilities_of(model)
        classes = getattr(model, "classes_", None)
        has_one_output = (
            classes is not None and len(classes) and not any(np.ndim(label) for label in classes)
        )
        self.classes: tuple[Any, ...] | None = (
            tuple(np.asarray(classes).tolist()) if has_one_output else None
        )
        self._takes_fractions = goal is None or goal.takes_fractions
        self.calls = self.rows = 0
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"LabelModel({self.calls} calls, {self.rows} rows)"

    def __call__(self, frame: pd.DataFrame) -> NDArray[Any]:
        labels = self._ask(self._predict, frame)
        with quiet("the model returned labels that cannot be compared", ModelError, let=ModelError):
            return self._checked(labels, len(frame))

    @property
    def decision(self) -> DecisionRule:
        """How the model's outcomes follow from its probabilities.

        Raises
        ------
        ModelError
            If the model gives no probabilities.
        """
        return self._with_probabilities().decision

    def ask_probabilities(self, frame: pd.DataFrame) -> Floats:
        """Return the probability of each class for each row; shape (n, n_classes)."""
        probabilities = self._with_probabilities()
        return probabilities.decision.checked(self._ask(probabilities.ask, frame), len(frame))

    def _with_probabilities(self) -> Probabilities:
        if self._probabilities is None:
            raise ModelError(
                "a margin, and models in later=, need probabilities: a classifier with"
                " predict_proba, or a function that returns a probability and threshold=. This"
                " model has none; write PrivacyPolicy(margin=0)"
            )
        return self._probabilities

    def _ask(self, ask: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> NDArray[Any]:
        """Ask about a table, in the model's own columns, and count it."""
        started = perf_counter()
        try:
            with quiet(lambda: self._form.failure(frame[self.columns]), ModelError, let=ModelError):
                # the model may change it
                lent = select(frame, self.columns).copy(deep=COPIES_EAGERLY)
                return np.asarray(ask(lent))
        finally:
            self.calls += 1
            self.rows += len(frame)
            self.seconds += perf_counter() - started

    def _checked(self, labels: NDArray[Any], n: int) -> NDArray[Any]:
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ModelError(
                f"the model returned an array of shape {labels.shape}; give a model that returns"
                " labels, such as lambda rows: model.predict(rows).argmax(axis=1) of one that"
                " returns a number for each class"
            )
        if len(labels) != n:
            raise ModelError(f"the model returned {len(labels)} labels for {n} rows")
        if pd.isna(labels).any():
            raise ModelError("the model returned missing labels")
        if not self._takes_fractions and labels.dtype.kind == "f" and bool((labels % 1 != 0).any()):
            raise ModelError(
                "the model returned fractions; of probabilities give threshold=, of other numbers a"
                " range, desired=(low, high)"
            )
        if self.classes is not None and not {*self.classes}.issuperset(pd.unique(labels).tolist()):
            raise ModelError("the model returned a label that is not one of its classes")
        return labels


@dataclass(frozen=True, kw_only=True)
class ModelForm:
    """What a model says of the rows that it takes, to name the likely cause of a failure."""

    call: str
    """How a user asks the model: ``model.predict`` or ``model``."""
    n_columns: int | None
    """Number of columns that the model was fitted on; None if it does not say."""
    has_names: bool
    """Whether the model was fitted on a table, and not on an array."""

    @classmethod
    def of(cls, model: Any) -> ModelForm:
        """Read the form from a model's attributes, as scikit-learn names them."""
        methods = ["predict"]
        if isinstance(model, Thresholded):
            model = model.model
            methods = ["predict_proba", "predict"]
        names = [f"model.{name}" for name in methods if hasattr(model, name)]
        n_columns = getattr(model, "n_features_in_", None)
        return cls(
            call=names[0] if names else "model",
            n_columns=int(n_columns) if isinstance(n_columns, (int, np.integer)) else None,
            has_names=getattr(model, "feature_names_in_", None) is not None,
        )

    def failure(self, rows: pd.DataFrame) -> str:
        """Return what is said of a model that raised on these rows; ``{}`` stands for its error.

        It names columns and never a value.
        """
        texts = [str(name) for name in rows if not types.is_numeric_dtype(rows[name].dtype)]
        causes = []
        if texts:
            columns = "columns" if len(texts) > 1 else "column"
            causes.append(f"many models need numbers, and have none in {columns} {listed(texts)}")
        if self.n_columns is not None and self.n_columns != rows.shape[1]:
            causes.append(
                f"the model was fitted on {self.n_columns} columns, and the schema has"
                f" {rows.shape[1]} features"
            )
        elif self.n_columns is not None and not self.has_names:
            causes.append("the model was fitted on an array, and it is given a table")
        check = f"call {self.call}(train[features].head()) yourself to see the error"
        if causes:
            check += (
                ". If the model wants its rows encoded, give a pipeline that encodes them, or a"
                f" function: model=lambda rows: {self.call}(encode(rows))"
            )
        return "; ".join([f"the model raised {{}} on {len(rows)} rows", *causes, check])


def predict_of(model: Any) -> Callable[[pd.DataFrame], Any]:
    """Return what asks a model about a table; a model that takes none is refused, with a wrapper
    that would.
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(model).__mro__}
    if ("onnxruntime", "InferenceSession") in kinds:
        return partial(_run_onnx, model)
    predict = getattr(
        model, "inplace_predict" if ("xgboost", "Booster") in kinds else "predict", None
    )
    if predict is None and ("torch", "Module") in kinds:
        raise ModelError(
            "a torch module takes tensors; give a function of a table: model=lambda rows: "
            "net(torch.tensor(rows.to_numpy('float32'))).argmax(1).numpy()"
        )
    found: Callable[[pd.DataFrame], Any] = predict or model
    if not callable(found):
        raise ModelError(
            f"a model needs a predict method or to be callable; got {type(model).__name__}"
        )
    if isinstance(model, type):
        raise ModelError(
            f"{model.__name__} is a class and no fitted model; have you forgotten the ()?"
        )
    return found


_TENSORS = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(string)": "str"}


def _run_onnx(session: Any, rows: pd.DataFrame) -> Any:
    """Ask an ONNX model for its first output; it takes the table as one tensor, or a tensor for
    each column.
    """
    inputs = session.get_inputs()
    kinds = [
        _TENSORS.get(each.type, each.type.removeprefix("tensor(").removesuffix(")"))
        for each in inputs
    ]
    parts = [rows] if len(inputs) == 1 else [rows[[each.name]] for each in inputs]
    given = {
        each.name: part.to_numpy(dtype=kind)
        for each, part, kind in zip(inputs, parts, kinds, strict=True)
    }
    return session.run([session.get_outputs()[0].name], given)[0]


def _columns_of(model: Any, features: Sequence[str]) -> list[str]:
    """Return the columns that a model was fitted on, in its order; where it does not say, all
    features.
    """
    if (wanted := getattr(model, "feature_names_in_", None)) is not None:
        columns = [str(name) for name in wanted]
        unknown = [name for name in columns if name not in features]
        if unknown:
            raise ModelError(_unknown_columns(unknown, features))
        return columns
    # of CatBoost, XGBoost and LightGBM
    for name in ("feature_names_", "feature_names", "feature_name"):
        own = getattr(model, name, None)
        own = own() if callable(own) else own
        if isinstance(own, list) and set(own) <= set(features):
            return own
    return list(features)


def _unknown_columns(unknown: Sequence[str], features: Sequence[str]) -> str:
    """Return what is said of columns that a model wants and the schema does not have.

    Columns that an encoder made are named by the feature that they are made from, as their own
    names often end in one of its values.
    """
    others = []
    encoded: dict[str, None] = {}
    for name in unknown:
        # a ColumnTransformer puts the name of the encoder before a column: onehot__job_clerk
        spelled = (name, name.partition("__")[2])
        sources = [
            feature for feature in features if any(_is_made_from(feature, each) for each in spelled)
        ]
        if sources:
            encoded[max(sources, key=len)] = None
        else:
            others.append(name)
    wanted = []
    if others:
        wanted.append(f"{others}, no features of the schema")
    if encoded:
        wanted.append(f"columns that are made from {listed([*encoded])}")
    hint = "fit it without, or give a function"
    if encoded:
        hint = (
            "give a pipeline that encodes, or a function: model=lambda rows:"
            " model.predict(encode(rows))"
        )
    return f"the model wants {' and '.join(wanted)}; {hint}"


def _is_made_from(feature: str, column: str) -> bool:
    """Return True if a column is named after a feature, as ``job_clerk`` and ``job=clerk`` are."""
    rest = column.removeprefix(feature)
    return column.startswith(feature) and not rest[:1].isalnum()


class Thresholded:
    """A model that gives an outcome where its probability is at least a threshold.

    Parameters
    ----------
    model : object
        A classifier of two classes with ``predict_proba``: the probability is that of the second
        class. What any other model returns is taken as the probability of outcome 1; below the
        threshold the outcome is 0.
    threshold : float
        Above 0, at most 1.

    Examples
    --------
    >>> import pandas as pd
    >>> model = Thresholded(lambda rows: rows["score"] / 100, 0.3)
    >>> model.predict(pd.DataFrame({"score": [29, 30, 31]}))
    array([0, 1, 1])
    """

    def __init__(self, model: Any, threshold: float) -> None:
        if (
            not isinstance(threshold, (int, float))
            or isinstance(threshold, bool)
            or not 0 < threshold <= 1
        ):
            raise ModelError("threshold must be a probability, a number above 0 and at most 1")
        self.model, self.threshold = model, threshold
        self._ask = getattr(model, "predict_proba", None) or predict_of(model)
        self.classes_ = np.asarray(
            getattr(model, "classes_", [0, 1]) if hasattr(model, "predict_proba") else [0, 1]
        )
        if len(self.classes_) != 2:
            raise ModelError(
                f"threshold= needs two classes, and the model has {len(self.classes_)}; give the"
                " probability of one of them: model=lambda rows: model.predict_proba(rows)[:, i],"
                " desired=1"
            )

    def predict(self, rows: pd.DataFrame) -> NDArray[Any]:
        """Return the outcome of each row."""
        second = self._probability_of_second(rows)
        return np.asarray(self.classes_[(second >= self.threshold).astype(int)])

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of both classes; shape (n, 2)."""
        second = self._probability_of_second(rows)
        return np.column_stack([1 - second, second])

    def _probability_of_second(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        found = np.asarray(self._ask(rows))
        if found.ndim == 2 and found.shape[1] <= 2:
            found = found[:, -1]
        if found.ndim != 1 or found.dtype.kind != "f" or not ((found >= 0) & (found <= 1)).all():
            raise ModelError(
                "threshold= needs a model that returns one probability for each row, between 0 and"
                f" 1; this one returns an array of {found.dtype} of shape {found.shape}"
            )
        return found


def _probabilities_of(model: Any) -> Probabilities | None:
    """Return where a model's probabilities come from; None if it gives none."""
    if isinstance(model, LabelModel):  # as workers of a cluster get it
        inner = model._probabilities
        return None if inner is None else Probabilities(model.ask_probabilities, inner.decision)
    if isinstance(model, Thresholded):
        classes = model.classes_.astype(object)
        decision = ProbabilityThreshold(classes, float(model.threshold))
        return Probabilities(model.predict_proba, decision)
    return probabilities_of(model)


def thresholded(model: Any, threshold: float | None) -> Any:
    return model if threshold is None else Thresholded(model, threshold)


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the population's values inside a region; code ``domain.size`` is the
    counterfactual's own.
    """

    # inside, per quasi-identifier; then, where generalised, per private attribute
    codes: tuple[Codes, ...]
    size: int = field(init=False)  # number of combinations; may be huge

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", prod(map(len, self.codes)))

    @classmethod
    def of(
        cls,
        region: Region,
        population: Population,
        own: Sequence[int],
        private: Sequence[Codes] = (),
    ) -> Grid:
        """Enumerate the codes inside a region; `own` are the counterfactual's, `private` further
        axes.
        """
        axes: list[Codes] = []
        for code, name in zip(own, population.schema.quasi_identifiers, strict=True):
            domain = population.domains[name]
            inside = np.flatnonzero(domain.inside(region.parts[name])).astype(np.int32)
            axes.append(np.append(inside, np.int32(domain.size)) if code == UNKNOWN else inside)
        return cls((*axes, *private))

    def all(self) -> Codes:
        """Return every combination, shape (size, number of axes)."""
        return np.stack(np.meshgrid(*self.codes, indexing="ij"), axis=-1).reshape(
            -1, len(self.codes)
        )

    def some(self, at: NDArray[np.int64]) -> Codes:
        places = np.unravel_index(at, [*map(len, self.codes)])
        return np.column_stack(
            [axis[place] for axis, place in zip(self.codes, places, strict=True)]
        ).astype(np.int32)

    def drawn(self, most: int = MOST_CELLS, n: int = SAMPLED, seed: int = 0) -> Codes:
        """Return all combinations, or a sample if they are too many; it does not depend on what
        else is asked.
        """
        return self.all() if self.size <= most else self.sample(n, np.random.default_rng(seed))

    def sample(self, n: int, random: np.random.Generator) -> Codes:
        """Return n different combinations, drawn uniformly (all if n >= size)."""
        if n >= self.size:
            return self.all()
        drawn: dict[tuple[int, ...], None] = {}
        while len(drawn) < n:  # rejection keeps memory small however large the grid is
            picks = [axis[random.integers(0, len(axis), n)].tolist() for axis in self.codes]
            drawn |= dict.fromkeys(zip(*picks, strict=True))
        return np.array(list(drawn)[:n], dtype=np.int32)


def rows_for_cells(
    encoder: Encoder, given: pd.DataFrame | EncodedTable, which: NDArray[np.int64], cells: Codes
) -> pd.DataFrame:
    """Build model input: quasi-identifiers of cell ``cells[i]``, the rest from row ``which[i]`` of
    those given.
    """
    named = (*encoder.schema.quasi_identifiers, *encoder.schema.private)[: cells.shape[1]]
    columns = {}

    for j, (name, domain) in enumerate(zip(encoder.schema.features, encoder.columns, strict=True)):
        if name not in named:
            columns[name] = (
                given.column(j, which)
                if isinstance(given, EncodedTable)
                else given[name].array.take(which)
            )
            continue
        codes = cells[:, named.index(name)]
        is_own = codes == domain.size
        if not is_own.any():
            columns[name] = domain.restore_array(codes)
            continue
        column = domain.restore(codes.clip(max=domain.size - 1)).astype(object)
        frame = given.frame if isinstance(given, EncodedTable) else given
        column[is_own] = frame[name].array.take(which[is_own]).astype(object)
        columns[name] = conform(column, domain.dtype).array
    return table_of(columns)


OUTCOMES = "outcomes"
"""Name under which the outcomes of the sides are sealed."""
_TRIED = 256  # rows


class KnownOutcomes(NamedTuple):
    """What the model said of cells before verification asks; ``which`` is the counterfactual of
    each.
    """

    which: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    cells: Codes = np.empty((0, 0), dtype=np.int32)
    predictions: Predictions = Predictions.joined([])

    def restrict(self, is_kept: Mask) -> KnownOutcomes:
        """Return what is known of some of the counterfactuals, which are renumbered from 0."""
        if is_kept.all():
            return self
        at = np.flatnonzero(is_kept[self.which])
        number = np.cumsum(is_kept) - 1
        return KnownOutcomes(number[self.which[at]], self.cells[at], self.predictions.part(at))


class TrainingLabels(HostOnly):
    """Predictions for the population's own rows, each asked at most once."""

    def __init__(self, model: LabelModel, population: Population) -> None:
        self.model, self.population = model, population
        self._label: NDArray[Any] = np.empty(population.n_rows, dtype=object)
        self._known = np.zeros(population.n_rows, dtype=bool)
        # what answers require of the outcomes that they rest on
        self.requirement: Requirement = AnyOutcome()

    def predictions(self, frame: pd.DataFrame) -> Predictions:
        """Return the model's labels of a table, and whether an answer may rest on each."""
        return self.requirement.predictions(self.model, frame)

    def predictions_of_rows(self) -> Predictions:
        """Return the predictions for all rows of the population."""
        at = np.arange(self.population.n_rows)
        labels = self.labels(at)
        if isinstance(self.requirement, AnyOutcome):
            return Predictions(labels, np.ones(len(at), dtype=bool))
        return self.predictions(self.population.rows(at))

    def labels(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if len(unknown := np.unique(rows[~self._known[rows]])):
            self._label[unknown] = self.model(self.population.rows(unknown)).astype(object)
            self._known[unknown] = True
        return self._label[rows]

    def tried(self) -> NDArray[Any] | None:
        """Return labels of the first rows, to see whether the model works; None without rows."""
        if not self.population.has_rows:
            return None
        return self.model(self.population.rows(np.arange(min(_TRIED, self.population.n_rows))))

    def ask(self, frame: pd.DataFrame) -> NDArray[Any]:
        return self.model(frame).astype(object)

    def outcomes(
        self,
        accepted: EncodedTable,
        queries: EncodedTable | NDArray[Any] | None,
        fixed: Any,
        foreseen: Callable[[Region], Codes] | None,
    ) -> tuple[NDArray[Any], NDArray[Any] | None, KnownOutcomes]:
        """Ask for the labels of counterfactuals and, unless known, of queries; and for cells of
        `foreseen`.

        This is one call of the model, if the tables have the same dtypes.
        """
        count, known = len(accepted), None if isinstance(queries, EncodedTable) else queries
        if not 0 < count <= FEW:
            if not isinstance(queries, EncodedTable):
                return self._ask_all(accepted)[0], known, KnownOutcomes()
            own, known = self._ask_all(accepted, queries)
            return own, known, KnownOutcomes()
        every = accepted.joined(queries) if isinstance(queries, EncodedTable) else accepted
        codes, sizes = every.quasi_identifiers[0], self.population.sizes.astype(np.int32)
        which, cells = [np.arange(len(every))], [np.where(codes < 0, sizes, codes)]
        if fixed is not None and foreseen is not None:
            groups = fixed.group_of(
                accepted.codes, accepted.numbers, np.zeros(count, dtype=np.int64)
            )
            for i in np.flatnonzero(groups >= 0).tolist():
                cells.append(foreseen(fixed.regions[groups[i]]))
                which.append(np.full(len(cells[-1]), i))
        at, asked = np.concatenate(which), np.concatenate(cells)
        frame = rows_for_cells(self.population.encoder, every, at, asked)
        of_accepted, of_queries, rest = self.predictions(frame).divided(
            [count, len(every) - count, len(at) - len(every)]
        )
        known_outcomes = KnownOutcomes(at[len(every) :], asked[len(every) :], rest)
        labels_of_queries = of_queries.labels if isinstance(queries, EncodedTable) else known
        return of_accepted.labels, labels_of_queries, known_outcomes

    def _ask_all(self, *intakes: EncodedTable) -> list[NDArray[Any]]:
        """Return the labels of each table, in one call where all have the same dtypes."""
        frames = [encoded.frame for encoded in intakes if len(encoded)]
        if len(frames) > 1 and all(frames[0].dtypes.equals(each.dtypes) for each in frames):
            labels = self.ask(pd.concat(frames, ignore_index=True))
            return divided(labels, [len(encoded) for encoded in intakes])
        nothing = np.empty(0, dtype=object)
        return [self.ask(encoded.frame) if len(encoded) else nothing for encoded in intakes]

    def queried(
        self, factuals: pd.DataFrame, query: NDArray[np.int64]
    ) -> EncodedTable | NDArray[Any]:
        """Return the labels of the queries, each asked once; where they are few, the queries, to be
        asked later.
        """
        encoder = self.population.encoder
        if len(query) <= FEW:
            return encoder.read(factuals)
        _, first, of = np.unique(query, return_index=True, return_inverse=True)
        return self.ask(encoder.conform(factuals.take(first)))[of]


REFUSED, DESIRED, SURE = 0, 1, 2
"""What the model thinks of a cell: another outcome; the desired one; that, and an answer may rest
on it.
"""


class CombinationOutcomes(HostOnly):
    """Says for a set of counterfactuals whether the outcome of a cell, or of a training row, is the
    desired one.

    A cell is asked about with its quasi-identifiers and the counterfactual's private values.
    `desired_at`: codes of the counterfactuals' own quasi-identifiers, where all are known to have
    the outcome; `known_outcomes`: what else is known.
    """

    def __init__(
        self,
        judge: OutcomeTest,
        rows: TrainingLabels,
        counterfactuals: pd.DataFrame | EncodedTable,
        desired_at: Codes | None = None,
        known_outcomes: KnownOutcomes | None = None,
    ) -> None:
        self._judge = judge
        self._rows = rows
        self._counterfactuals = counterfactuals
        self._answers: dict[Any, int] = {}
        self._at = np.arange(len(counterfactuals))
        # one number per counterfactual and cell, where 64 bits hold it
        sizes = rows.population.sizes + 1
        self._radix: NDArray[np.int64] | None = None
        if prod(sizes.tolist()) * max(len(counterfactuals), 1) < np.iinfo(np.int64).max:
            self._radix = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
            self._span = int(sizes.prod())
        if desired_at is not None:
            own = np.where(desired_at < 0, sizes - 1, desired_at).astype(np.int32)
            self._answers.update(dict.fromkeys(self._keys(self._at, own), SURE))
        if known_outcomes is not None and len(known_outcomes.which):
            grades = self._graded(known_outcomes.predictions, known_outcomes.which).tolist()
            self._answers.update(
                zip(self._keys(known_outcomes.which, known_outcomes.cells), grades, strict=True)
            )

    def _counts(self) -> str:
        return f"{len(self._answers)} cells known"

    def restrict(self, at: NDArray[np.int64]) -> CombinationOutcomes:
        """Return this oracle for some of its counterfactuals, renumbered from 0; answers stay
        shared.
        """
        part = object.__new__(CombinationOutcomes)
        part.__dict__.update(vars(self), _at=self._at[at])
        return part

    def ask(self, which: NDArray[np.int64], cells: Codes, *, reuse: bool = True) -> Mask:
        """Say of every cell whether it gets the desired outcome; see `grades`."""
        return np.asarray(self.grades(which, cells, reuse=reuse) >= DESIRED)

    def grades(
        self, which: NDArray[np.int64], cells: Codes, *, reuse: bool = True
    ) -> NDArray[np.int8]:
        """Say what the model thinks of every cell, in one call: `REFUSED`, `DESIRED` or `SURE`.

        ``cells[i]`` are codes for counterfactual ``which[i]``, of private attributes too unless
        `reuse`; ``domain.size`` is the counterfactual's own value. With `reuse`, answers are
        remembered.
        """
        which = self._at[which]
        if not reuse:
            return self._evaluate(which, cells)
        keys, answers = self._keys(which, cells), self._answers
        if None in (found := [*map(answers.get, keys)]):
            first = {key: i for i, key in enumerate(keys) if key not in answers}
            at = np.fromiter(first.values(), dtype=np.int64, count=len(first))
            answers.update(zip(first, self._evaluate(which[at], cells[at]).tolist(), strict=True))
            found = [*map(answers.get, keys)]
        return np.array(found, dtype=np.int8)

    def desired_rows(self, which: int | NDArray[np.int64], rows: NDArray[np.int64]) -> Mask | None:
        """Say of training rows whether their prediction is what a counterfactual asks for; None
        without rows.

        Of several counterfactuals, for each; shape (counterfactuals, rows).
        """
        if not self._rows.population.has_rows:
            return None
        labels = np.tile(self._rows.labels(rows), np.size(which))
        return self._judge(labels, np.repeat(self._at[which], len(rows))).reshape(
            *np.shape(which), len(rows)
        )

    def _evaluate(self, which: NDArray[np.int64], cells: Codes) -> NDArray[np.int8]:
        frame = rows_for_cells(self._rows.population.encoder, self._counterfactuals, which, cells)
        return self._graded(self._rows.predictions(frame), which)

    def _graded(self, predictions: Predictions, which: NDArray[np.int64]) -> NDArray[np.int8]:
        is_desired = self._judge(predictions.labels, which)
        return np.where(is_desired, np.where(predictions.is_sure, SURE, DESIRED), REFUSED).astype(
            np.int8
        )

    def _keys(self, which: NDArray[np.int64], cells: Codes) -> list[Any]:
        if self._radix is not None:
            keys: list[Any] = (cells.astype(np.int64) @ self._radix + which * self._span).tolist()
            return keys
        return [
            (i, cell.tobytes())
            for i, cell in zip(which.tolist(), np.ascontiguousarray(cells), strict=True)
        ]


class EligibilityClasses(HostOnly):
    """Which rows may be in one group, and which class a counterfactual belongs to.

    If everybody counts, there is one class. If only eligible people count, those with the desired
    outcome are one class; under an outcome that depends on the factual, those with each predicted
    label are one.

    Attributes
    ----------
    of_rows : array of int, shape (n_rows,)
        The class of each row; -1 for a row that does not count.
    """

    def __init__(
        self, policy: PrivacyPolicy, desired_outcome: DesiredOutcome, rows: TrainingLabels
    ) -> None:
        self._class_of_label: dict[object, int] | None = None
        population = rows.population
        self.of_rows = np.zeros(population.n_rows, dtype=np.int64)
        if not policy.counts_eligible or population.is_sealed:
            # A sealed population has no rows; the label of each class was sealed.
            sealed_labels = population.sealed_facts.get(OUTCOMES)
            if desired_outcome.has_class_per_label and sealed_labels is not None:
                self._class_of_label = _numbered(sealed_labels)
            return
        predictions = rows.predictions_of_rows()
        labels = predictions.labels
        if desired_outcome.has_class_per_label:
            self._class_of_label = _numbered(sorted(set(labels.tolist()), key=str))
        is_counted = desired_outcome.is_eligible(labels) & predictions.is_sure
        self.of_rows = np.where(is_counted, self.of(labels), -1)

    @property
    def is_one(self) -> bool:
        """Whether there is one class for every counterfactual, whatever its outcome."""
        return self._class_of_label is None

    @property
    def labels(self) -> list[object]:
        """The label of each class; none if there is one class for every outcome."""
        if self._class_of_label is None:
            return []
        return [*self._class_of_label]

    def of(self, labels: Labels) -> Rows:
        """Return the class of counterfactuals with these labels, shape (n,).

        It is -1 for a label that no row has.
        """
        if self._class_of_label is None:
            return np.zeros(len(labels), dtype=np.int64)
        classes = [self._class_of_label.get(label, -1) for label in labels.tolist()]
        return np.array(classes, dtype=np.int64)

    def open_to(
        self,
        desired_outcome: DesiredOutcome,
        labels: Labels | None,
        factual_labels: Labels | None,
        n_queries: int,
    ) -> Mask:
        """Return the classes that may answer each query.

        If the factuals' labels are known, these are the classes whose label is desired. If only the
        counterfactuals' labels are known, it is the class with this label. If neither is known, the
        outcome must be the same for every query.

        Parameters
        ----------
        desired_outcome : DesiredOutcome
        labels : array, shape (n_queries,), optional
            The label of each query's counterfactual.
        factual_labels : array, shape (n_queries,), optional
        n_queries : int

        Returns
        -------
        array of bool, shape (n_queries, n_classes)

        Raises
        ------
        PolicyError
            If the outcome depends on the factual, and no labels are known.
        """
        if self._class_of_label is None:
            return np.ones((n_queries, 1), dtype=bool)
        label_of_class = np.empty(len(self._class_of_label), dtype=object)
        label_of_class[:] = self.labels
        if factual_labels is not None:
            return desired_outcome.is_met_by_query(label_of_class, factual_labels)
        if labels is not None:
            return np.asarray(self.of(labels)[:, None] == np.arange(len(label_of_class)))
        if desired_outcome.needs_factual_labels:
            raise PolicyError(
                'desired="opposite" needs the factuals; give them, or name the outcome'
            )
        return np.tile(desired_outcome.is_met(label_of_class), (n_queries, 1))


def _numbered(labels: Iterable[object]) -> dict[object, int]:
    """Return the position of each label."""
    return {label: number for number, label in enumerate(labels)}
