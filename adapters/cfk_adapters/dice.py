"""The adapter for dice-ml: explainers derived from its ``ExplainerBase`` that take tables."""

from __future__ import annotations

import copy
import inspect
import logging
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_adapters.dice_search import showing_search
from cfk_plugin.adapting import (
    CONSTRAINTS,
    DESIRED,
    AnswerRequest,
    CounterfactualBatch,
    ExplainerError,
    NoneFoundError,
    ask,
    constraints_of,
    desired_of,
    places_in_call,
    places_of,
    released_cells,
)
from cfk_plugin.data.outcome import DesiredRange, DesiredSet, Outcome
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import hookimpl
from cfk_plugin.release.results import GeneralizedCounterfactual

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cfk_plugin.hookspecs import AdaptContext, DependsOnRows
    from cfk_plugin.release.explanations import Explanations
    from cfk_plugin.release.results import Explanation

BASE = ("dice_ml.explainer_interfaces.explainer_base", "ExplainerBase")
INSTANCE_BASED = {"DiceKD", "DiceGenetic"}  # the genetic search starts at training rows by default
METHODS = (
    "generate_counterfactuals",
    "local_feature_importance",
    "global_feature_importance",
    "feature_importance",
)

# Options that a catalogue can follow; the others only steer DiCE's search.
READ_OPTIONS = {
    *DESIRED,
    *CONSTRAINTS,
    "total_CFs",
    "verbose",
    "posthoc_sparsity_param",
    "local_importance",
    "global_importance",
}

# The likely cause of an error of DiCE, by a part of its text. The text itself may quote rows.
LIKELY_CAUSES = {
    "outside the dataset": "a query has a category that is not in the table of dice_ml.Data",
    "could not convert string": (
        "the model of dice_ml.Model got text instead of a number: it must take the columns of"
        " dice_ml.Data as they are, so give a pipeline that encodes them"
    ),
    "contains NaN": "a query has a missing value; impute it",
    "unexpected keyword argument": "DiCE does not have an option; check its spelling",
    "should be a positive integer": "total_CFs is not at least 1",
    "requested per query instance": "importances need total_CFs=10 or more",
    "number of query instances": "a global importance needs ten queries or more",
}

log = logging.getLogger("cfk_plugin")

Native = Any  # a dice_ml CounterfactualExplanations; only users import the library


@hookimpl
def cfk_adapt(explainer: Any, context: AdaptContext) -> DiceSource | None:
    """Adapt an instance of DiCE's ``ExplainerBase``."""
    if BASE not in {(kind.__module__, kind.__qualname__) for kind in type(explainer).__mro__}:
        return None
    if missing := [
        name for name in context.features if name not in explainer.data_interface.feature_names
    ]:
        raise AdapterError(
            f"DiCE's data interface lacks the feature {', '.join(missing)}; if it is the label,"
            f" declare target={missing[0]!r} in the schema"
        )
    return DiceSource(explainer, context)


class DiceSource:
    """A DiCE explainer as a source of counterfactuals.

    Each call uses a shallow copy of the explainer, because DiCE stores the raw counterfactuals and
    training rows of the last call on itself. The global random state is restored: without a seed, a
    call repeats its answer until the caller draws a random number. The queries passed to DiCE have
    no label column, DiCE's order of columns, and categories as text. Of DiCE's two tables of
    answers, the sparse one is read if there is one, as DiCE displays it.

    Feature importances are computed from released explanations, not from DiCE's raw
    counterfactuals: the importance of a feature is the share of a query's explanations that ask the
    person to change it.

    Parameters
    ----------
    explainer : dice_ml ExplainerBase
    context : AdaptContext
    """

    def __init__(self, explainer: Any, context: AdaptContext) -> None:
        self._explainer = explainer
        self._features = list(context.features)
        self._desired = context.desired
        # DiCE takes the position of a class. It displays the label if its model has `classes_`.
        classes = getattr(getattr(explainer.model, "model", None), "classes_", None)
        self._has_labels = classes is not None
        if classes is None:
            classes = context.classes
        self._classes = None if classes is None else np.asarray(classes).tolist()
        kinds = {kind.__name__ for kind in type(explainer).__mro__}
        self.name = f"dice:{type(explainer).__name__}"
        has_rows = hasattr(explainer.data_interface, "data_df")
        self.instance_based = bool(kinds & INSTANCE_BASED) and has_rows
        # If DiCE has rows, it searches between the lowest and the highest number of each column.
        self.depends_on_rows: DependsOnRows = "yes" if has_rows else "no"

    def __repr__(self) -> str:
        """Return the name of the explainer, without its rows."""
        return f"DiceSource({self.name})"

    def generate(
        self, queries: pd.DataFrame, total_CFs: int = 1, **options: Any
    ) -> CounterfactualBatch:
        """Call DiCE for `total_CFs` counterfactuals of each query, one query at a time.

        If DiCE cannot answer a query, because of a missing value or an unknown category, its slots
        stay empty, and the other queries are answered.

        Raises
        ------
        AdapterError
            If DiCE fails on every query, or a required column is missing.
        InputError
            If the call names an outcome that the model does not have.
        """
        table = self._table(queries)
        desired = desired_of(options, self._classes)
        options = {name: value for name, value in options.items() if name not in DESIRED}
        options |= self._goal(desired)
        usable = table.notna().all(axis=1).to_numpy()
        frames: list[pd.DataFrame | None] = [None] * len(table)
        failures: list[AdapterError] = []
        explainer = ask(lambda: _working_copy(self._explainer))

        def explain(query: pd.DataFrame) -> pd.DataFrame | None:
            native = ask_dice(
                lambda: explainer.generate_counterfactuals(query, total_CFs, **options)
            )
            return None if native is None else _displayed(native.cf_examples_list[0])

        with showing_search(self._explainer, int(usable.sum())) as counted:
            for i in counted(np.flatnonzero(usable)):
                try:
                    frames[i] = explain(table.iloc[i : i + 1])
                except AdapterError as error:
                    failures.append(error)
        if failures and len(failures) == usable.sum():
            raise failures[0]
        if failures or not usable.all():
            log.info("DiCE failed on %d of %d queries", len(failures) + (~usable).sum(), len(table))
        return self._batch(frames, total_CFs, desired, options)

    @property
    def methods(
        self,
    ) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, Native, pd.DataFrame]]]:
        """DiCE's public methods that return counterfactuals."""
        return {
            name: self._method(name)
            for name in METHODS
            if callable(getattr(self._explainer, name, None))
        }

    def restore(self, native: Native, explanations: Explanations) -> Native:
        """Build a new ``CounterfactualExplanations`` from explanations.

        Only the queries and the settings are copied from `native`. If `native` has importances, the
        result has them too, computed from the explanations.
        """
        changes = [
            self._changes(examples, explanations.for_query(i))
            for i, examples in enumerate(native.cf_examples_list)
        ]
        local = None
        if native.local_importance is not None:
            local = [self._shares(changes_of_query) for changes_of_query in changes]
        overall = None
        if native.summary_importance is not None:
            overall = self._shares([*chain.from_iterable(changes)])
        return type(native)(
            cf_examples_list=[
                self._restore_one(examples, explanations.for_query(i))
                for i, examples in enumerate(native.cf_examples_list)
            ],
            local_importance=local,
            summary_importance=overall,
            version=native.metadata.get("version"),
        )

    def _changes(self, examples: Any, entries: Sequence[Explanation]) -> list[set[str]]:
        """Return the features that each released explanation of a query asks to change."""
        row = examples.test_instance_df.iloc[0]
        factual = {name: row[name] for name in self._features}
        return [
            entry.changes(factual)
            for entry in entries
            if isinstance(entry, GeneralizedCounterfactual)
        ]

    def _shares(self, changes: Sequence[set[str]]) -> dict[str, float]:
        """Return the share of explanations that change each feature; 0 without explanations."""
        count = max(len(changes), 1)
        return {
            name: sum(name in features for features in changes) / count for name in self._features
        }

    def read_request(
        self, method: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call of a method of DiCE without calling it.

        Raises
        ------
        AdapterError
            If the call has `cf_examples_list`, or a `stopping_threshold` other than DiCE's default:
            answers from a catalogue do not promise a probability.
        """
        name = "generate_counterfactuals" if method == "generate" else method
        signature = inspect.signature(getattr(self._explainer, name))
        parameters = signature.parameters
        if method == "generate":
            named = {"total_CFs": 1, **named}
        bound = _arguments(name, signature, args, named)
        options = dict(bound.arguments)
        options |= options.pop("kwargs", {})
        table = self._table(options.pop(next(iter(parameters))))
        if options.get("cf_examples_list") is not None:
            raise AdapterError(
                "cf_examples_list cannot be given to a protected explainer; leave it out"
            )
        parameter = parameters.get("stopping_threshold")
        threshold = options.pop("stopping_threshold", None)
        if parameter is not None and threshold not in (None, parameter.default):
            raise AdapterError(
                "stopping_threshold requires a probability, which answers from the catalogue do"
                " not promise; leave it out"
            )
        bound.apply_defaults()
        return AnswerRequest(
            queries=table[self._features],
            n_answers=int(bound.arguments["total_CFs"]),
            desired=desired_of(options, self._classes),
            constraints=constraints_of(options),
            ignored=tuple(sorted(set(options) - READ_OPTIONS)),
            adapter_data=_Call(table=table, options=bound.arguments),
        )

    def build(self, method: str, request: AnswerRequest, explanations: Explanations) -> Native:
        """Build a ``CounterfactualExplanations`` for a call that the catalogue answered."""
        from dice_ml.counterfactual_explanations import CounterfactualExplanations

        call: _Call = request.adapter_data
        labels = self._predicted(call.table)
        examples = [
            self._unanswered(call, request.desired, i, label) for i, label in enumerate(labels)
        ]
        has_local, has_overall = _importances_of(method, call.options)
        unanswered = CounterfactualExplanations(
            cf_examples_list=examples,
            local_importance=[{} for _ in examples] if has_local else None,
            summary_importance={} if has_overall else None,
        )
        return self.restore(unanswered, explanations)

    def _predicted(self, table: pd.DataFrame) -> list[Any]:
        """Return the model's outcome at each query as DiCE displays it: a label or a number."""
        explainer = self._explainer
        scores = np.asarray(ask_dice(lambda: explainer.model.get_output(table)))
        if explainer.model.model_type == "regressor":
            return [float(score) for score in np.ravel(scores)]
        if scores.ndim == 2 and scores.shape[1] > 1:
            places = [int(place) for place in scores.argmax(axis=1)]
        else:
            places = [round(float(score)) for score in np.ravel(scores)]
        return [self._displayed_class(place) for place in places]

    def _unanswered(self, call: _Call, desired: Any, position: int, label: Any) -> Any:
        """Return DiCE's object for one query with the call's settings, without counterfactuals."""
        from dice_ml.diverse_counterfactuals import CounterfactualExamples
        from dice_ml.utils.serialize import DummyDataInterface

        outcome = self._explainer.data_interface.outcome_name
        options = call.options
        is_sparse = options.get("posthoc_sparsity_param") is not None
        return CounterfactualExamples(
            data_interface=DummyDataInterface(outcome),
            final_cfs_df=None,
            test_instance_df=call.table.iloc[[position]].assign(**{outcome: [label]}),
            final_cfs_df_sparse=pd.DataFrame() if is_sparse else None,
            posthoc_sparsity_param=options.get("posthoc_sparsity_param"),
            desired_range=copy.deepcopy(options.get("desired_range")),
            desired_class=self._new_outcome(desired, label),
            model_type=self._explainer.model.model_type,
        )

    def _new_outcome(self, desired: Any, label: Any) -> Any:
        """Return the outcome that DiCE prints above the answers to a query with this label.

        It is the outcome of the call or, if the call names none, of the fit. With "opposite", it is
        the other one of two classes.
        """
        goal = self._desired if desired is None else desired
        if isinstance(goal, DesiredSet):
            return str(goal)
        if goal is not None and not callable(goal):
            return _printed(self._displayed_label(goal))
        classes = map(self._displayed_label, self._classes or ())
        others = [displayed for displayed in classes if displayed != label]
        if len(others) == 1:
            return _printed(others[0])
        if others:
            return str(Outcome(label, is_other=True))
        return "opposite"

    def _method(self, name: str) -> Callable[..., tuple[CounterfactualBatch, Native, pd.DataFrame]]:
        """Return a function that calls one of DiCE's methods; see `methods`."""
        signature = inspect.signature(getattr(self._explainer, name))
        first = next(iter(signature.parameters))

        def call(*args: Any, **kwargs: Any) -> tuple[CounterfactualBatch, Native, pd.DataFrame]:
            bound = _arguments(name, signature, args, kwargs)
            bound.apply_defaults()
            if bound.arguments.get("cf_examples_list") is not None:
                raise AdapterError(
                    "cf_examples_list cannot be given to a protected explainer; leave it out"
                )
            desired = desired_of(bound.arguments, self._classes)
            for option, value in self._goal(desired).items():
                if option in signature.parameters:
                    bound.arguments[option] = value
            table = self._table(bound.arguments[first])
            if missing := [str(column) for column in table if table[column].isna().any()]:
                raise AdapterError(
                    f"DiCE does not accept missing values; impute column {', '.join(missing)}"
                )
            bound.arguments[first] = table
            none_found: list[Exception] = []

            with showing_search(self._explainer, len(table)) as counted:
                method = getattr(_working_copy(self._explainer, counted), name)
                native = ask_dice(lambda: method(*bound.args, **bound.kwargs), none_found)
            if native is None:
                raise NoneFoundError(none_found[0])
            frames = [_displayed(examples) for examples in native.cf_examples_list]
            queries = bound.arguments[first][self._features]
            batch = self._batch(frames, int(bound.arguments["total_CFs"]), desired, bound.arguments)
            return batch, native, queries

        return call

    def _goal(self, desired: Any) -> dict[str, Any]:
        """Return DiCE's options for the desired outcome.

        It is the outcome of the call or, if the call names none, of the fit. DiCE takes one class:
        of several, it gets the first.
        """
        if isinstance(desired, DesiredRange):
            return {"desired_range": [*desired.bounds]}
        if desired is None and isinstance(self._desired, DesiredRange):
            return {"desired_range": [*self._desired.bounds]}
        if desired is None:
            places = places_of(self._desired, self._classes)
            return {"desired_class": places[0] if places else "opposite"}
        if self._classes is None:
            return {"desired_class": desired}
        return {"desired_class": places_in_call(desired, self._classes)[0]}

    def _displayed_class(self, place: int) -> Any:
        """Return the value of DiCE's outcome column for the class at a position.

        It is the label. If DiCE's model has no `classes_`, DiCE displays positions; only labels
        that are text replace them.
        """
        if self._classes is None or not 0 <= place < len(self._classes):
            return place
        label = self._classes[place]
        return label if self._has_labels or isinstance(label, str) else place

    def _displayed_label(self, label: Any) -> Any:
        """Return the value of DiCE's outcome column for a label."""
        if self._classes is None or label not in self._classes:
            return label
        return self._displayed_class(self._classes.index(label))

    def _table(self, queries: Any) -> pd.DataFrame:
        """Return a copy of the queries with DiCE's columns in its order, and categories as text."""
        if not isinstance(queries, pd.DataFrame):
            raise AdapterError(
                f"DiCE takes queries as a DataFrame, not as {type(queries).__name__}"
            )
        interface = self._explainer.data_interface
        if missing := [name for name in interface.feature_names if name not in queries.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        table = queries[list(interface.feature_names)].copy(deep=True)
        # with rows, DiCE's categories are text; it would cast the text "False" to True
        if hasattr(interface, "data_df"):
            for name in interface.categorical_feature_names:
                table[name] = table[name].astype(object).map(str, na_action="ignore")
        return table

    def _batch(
        self,
        frames: Sequence[pd.DataFrame | None],
        n_answers: int,
        desired: Any,
        options: Mapping[str, Any],
    ) -> CounterfactualBatch:
        """Return the batch of DiCE's answers: one frame, or None, for each query."""
        answers: list[pd.DataFrame] = []
        slots: list[int] = []
        for i, frame in enumerate(frames):
            if frame is None:
                continue
            if missing := [name for name in self._features if name not in frame.columns]:
                raise AdapterError(f"DiCE's answer has no column {', '.join(missing)}")
            answers.append(frame[self._features].iloc[:n_answers])
            slots.extend(range(i * n_answers, i * n_answers + len(answers[-1])))
        table = pd.DataFrame(columns=self._features)
        if answers:
            table = pd.concat(answers, ignore_index=True)
        query = np.repeat(np.arange(len(frames)), n_answers)
        return CounterfactualBatch(
            table, np.asarray(slots, dtype=np.int64), query, desired, constraints_of(options)
        )

    def _restore_one(self, examples: Any, entries: Sequence[Explanation]) -> Any:
        """Build a new object of DiCE for one query from its explanations; see `restore`."""
        from dice_ml.utils.serialize import DummyDataInterface

        outcome = examples.data_interface.outcome_name
        test = examples.test_instance_df
        columns = [*(name for name in test.columns if name != outcome), outcome]
        factual = pd.DataFrame({name: [test[name].iat[0]] for name in columns})
        factual[outcome] = [self._named(factual[outcome].iat[0])]
        factual_cells = {name: factual[name].tolist()[0] for name in columns}
        rows = [
            {**_like(cells, factual_cells), outcome: self._label(entry.outcome)}
            for entry, cells in zip(entries, released_cells(entries), strict=True)
            if isinstance(entry, GeneralizedCounterfactual) and cells
        ]
        frame = None
        if rows:
            # so that a column without ranges has the same type as in DiCE's table
            frame = pd.DataFrame(rows, columns=columns, dtype=object).infer_objects()
        desired_class = self._named(examples.desired_class)
        if rows and examples.desired_range is None:
            desired_class = _printed(rows[0][outcome])
        rebuilt = type(examples)(
            data_interface=DummyDataInterface(outcome),
            final_cfs_df=frame,
            test_instance_df=factual,
            final_cfs_df_sparse=None
            if frame is None or examples.final_cfs_df_sparse is None
            else frame.copy(deep=True),
            posthoc_sparsity_param=examples.posthoc_sparsity_param,
            desired_range=copy.deepcopy(examples.desired_range),
            desired_class=desired_class,
            model_type=examples.model_type,
        )
        if frame is not None:  # DiCE's own method would read text as numbers
            rebuilt.print_list = partial(_print_list, list(factual_cells.values()))
        return rebuilt

    def _named(self, outcome: Any) -> Any:
        """Return the label for an outcome in DiCE's result, if labels are text.

        If DiCE's model has no `classes_`, the outcome in DiCE's result is a position or a
        probability.
        """
        is_position = not self._has_labels and self._explainer.model.model_type == "classifier"
        if isinstance(outcome, str) or not is_position:
            return outcome
        label = self._displayed_class(round(float(outcome)))
        return label if isinstance(label, str) else outcome

    def _label(self, certified: Outcome) -> Any:
        """Return the certified outcome for DiCE's outcome column: a label, or words."""
        if certified.label is None or certified.is_other:
            return str(certified)
        return self._displayed_label(certified.label)


def _arguments(
    method: str, signature: inspect.Signature, args: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments of a call by name.

    Raises
    ------
    AdapterError
        If an argument is missing or unknown. Its text is Python's, which names only parameters.
    """
    try:
        return signature.bind(*args, **named)
    except TypeError as error:
        problem = str(error)
    names = ", ".join(signature.parameters)
    raise AdapterError(f"{method}: {problem}; it takes {names}")


@dataclass(frozen=True)
class _Call:
    """A call of one of DiCE's methods: the queries for DiCE, and the arguments by name."""

    table: pd.DataFrame
    options: Mapping[str, Any]


def _importances_of(method: str, options: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a call's result has importances for each query, and for all together."""
    if not method.endswith("importance"):
        return False, False
    if method == "local_feature_importance":
        return True, False
    return bool(options.get("local_importance")), bool(options.get("global_importance", True))


def ask_dice(
    call: Callable[[], Native], none_found: list[Exception] | None = None
) -> Native | None:
    """Return the result of a call of DiCE, or None if DiCE found no counterfactual.

    In this case, an exception of DiCE's own class is added to `none_found`, with a constant text.
    """

    def is_none_found(error: Exception) -> bool:
        is_own_type = type(error).__name__ == "UserConfigValidationException"
        if not is_own_type or not str(error).startswith("No counterfactuals found"):
            return False
        if none_found is not None:
            none_found.append(type(error)("No counterfactuals found for any of the query points!"))
        return True

    try:
        return ask(call, is_none_found)
    except ExplainerError as error:
        raise ExplainerError(f"{error}{_likely_cause(error.__cause__)}") from error.__cause__


def _likely_cause(failure: BaseException | None) -> str:
    """Return the end of a message about an error of DiCE, without values of rows."""
    text = ""
    with suppress(Exception):  # the `str` of a model's own exception may raise
        text = str(failure)
    causes = [cause for part, cause in LIKELY_CAUSES.items() if part in text]
    likely = f", probably because {causes[0]}" if causes else ""
    return f"{likely}; the text of that error may quote rows; see the traceback (__cause__)"


def _printed(outcome: Any) -> Any:
    """Return an outcome as an int or text, because DiCE writes its ``desired_class`` to JSON."""
    if isinstance(outcome, bool) or (isinstance(outcome, float) and outcome.is_integer()):
        return int(outcome)
    if isinstance(outcome, int):
        return outcome
    return str(outcome)


def _displayed(examples: Any) -> pd.DataFrame | None:
    """Return the table that DiCE displays: the one after its sparsity step, if there is one."""
    for frame in (examples.final_cfs_df_sparse, examples.final_cfs_df):
        if frame is not None and len(frame):
            return pd.DataFrame(frame)
    return None


def _like(cells: Mapping[str, Any], factual: Mapping[str, Any]) -> dict[str, Any]:
    """Return cells in the types of the query's cells, if that changes no value."""
    converted = dict(cells)
    for name, cell in cells.items():
        kind = type(factual[name])
        if kind is str:
            converted[name] = str(cell)
        elif kind in (int, float) and type(cell) in (int, float) and kind(cell) == cell:
            converted[name] = kind(cell)
    return converted


def _print_list(
    factual: Sequence[Any], li: Sequence[Sequence[Any]], show_only_changes: bool
) -> None:
    """Print rows as DiCE does, with a dash for unchanged values; DiCE's own cannot print text."""
    for row in li:
        cells = ["-" if _is_close(new, old) else new for new, old in zip(row, factual, strict=True)]
        print(cells if show_only_changes else row)  # noqa: T201 - as DiCE's method does


def _is_close(new: Any, old: Any) -> bool:
    if isinstance(new, str) or isinstance(old, str):
        return bool(new == old)
    return math.isclose(new, old, rel_tol=abs(old / 10_000))


def _working_copy(explainer: Any, counted: Callable[[Any], Any] = iter) -> Any:
    """Return a copy of an explainer with the same model and training table, but its own state.

    `counted` replaces the progress bar of DiCE's loop over the queries.
    """
    working = copy.copy(explainer)
    working.data_interface = copy.copy(explainer.data_interface)
    function: Any = getattr(type(explainer), "generate_counterfactuals", None)
    if isinstance(function, FunctionType) and "generate_counterfactuals" not in vars(explainer):
        # DiCE's progress bar cannot be switched off, so the loop of this copy gets another `tqdm`.
        quiet = FunctionType(
            function.__code__,
            {**function.__globals__, "tqdm": counted},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        quiet.__kwdefaults__ = function.__kwdefaults__
        working.generate_counterfactuals = MethodType(quiet, working)
    return working
