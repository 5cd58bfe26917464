"""Adapter for dice-ml: all explainers derived from its ``ExplainerBase`` that take tables of raw
features.
"""

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
# the genetic search starts from training rows by default
INSTANCE_BASED = {"DiceKD", "DiceGenetic"}
METHODS = (
    "generate_counterfactuals",
    "local_feature_importance",
    "global_feature_importance",
    "feature_importance",
)

# Options that say what a call asks for; all others steer DiCE's search.
READ_OPTIONS = {
    *DESIRED,
    *CONSTRAINTS,
    "total_CFs",
    "verbose",
    "posthoc_sparsity_param",
    "local_importance",
    "global_importance",
}

# Why DiCE is likely to have failed, by a part of its text; the text itself may quote rows.
LIKELY_CAUSES = {
    "outside the dataset": "a query has a category that the table of dice_ml.Data does not have",
    "could not convert string": (
        "the model of dice_ml.Model got text in place of a number: it must take the columns of"
        " dice_ml.Data as they are, so give a pipeline that encodes them"
    ),
    "contains NaN": "a query has a missing value; impute it",
    "unexpected keyword argument": "DiCE does not know an option; check how it is spelled",
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
            f"DiCE's data interface does not have the feature {', '.join(missing)}; if it is the"
            f" label, write target={missing[0]!r} in the schema"
        )
    return DiceSource(explainer, context)


class DiceSource:
    """A DiCE explainer as a source of counterfactuals; its results are rebuilt without training
    rows.

    Each call works on a shallow copy of the explainer, because DiCE keeps raw counterfactuals and
    training rows of the last call on itself. Global random state is restored, so an unseeded call
    repeats its answer until the caller draws a random number. Queries lose the label column, and
    get the column order and the text categories that DiCE needs. Answers are read as DiCE displays
    them: from the sparse table if there is one.

    Feature importances are figures over the explanations that are released, and not over DiCE's raw
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
        # DiCE takes the position of a class, and shows its label if its model lists the classes.
        classes = getattr(getattr(explainer.model, "model", None), "classes_", None)
        self._has_labels = classes is not None
        if classes is None:
            classes = context.classes
        self._classes = None if classes is None else np.asarray(classes).tolist()
        kinds = {kind.__name__ for kind in type(explainer).__mro__}
        self.name = f"dice:{type(explainer).__name__}"
        has_rows = hasattr(explainer.data_interface, "data_df")
        self.instance_based = bool(kinds & INSTANCE_BASED) and has_rows
        # With rows at hand, DiCE searches between the lowest and the highest number among them.
        self.depends_on_rows: DependsOnRows = "yes" if has_rows else "no"

    def __repr__(self) -> str:
        """Name the generator."""
        return f"DiceSource({self.name})"

    def generate(
        self, queries: pd.DataFrame, total_CFs: int = 1, **options: Any
    ) -> CounterfactualBatch:
        """Ask for `total_CFs` counterfactuals of each query, one query at a time.

        A query that DiCE cannot answer (with a missing value, or an unknown category) has none
        found and does not stop the others.

        Raises
        ------
        AdapterError
            If DiCE fails on every query, or a column that it needs is missing.
        InputError
            If the call names an outcome that the model does not have.
        """
        table = self._table(queries)
        desired = desired_of(options, self._classes)
        options = {name: value for name, value in options.items() if name not in DESIRED}
        options |= self._goal(desired)
        usable = table.notna().all(axis=1).to_numpy()
        shown: list[pd.DataFrame | None] = [None] * len(table)
        failures: list[AdapterError] = []
        explainer = ask(lambda: _working_copy(self._explainer))

        def one(query: pd.DataFrame) -> pd.DataFrame | None:
            native = ask_dice(
                lambda: explainer.generate_counterfactuals(query, total_CFs, **options)
            )
            return None if native is None else _shown(native.cf_examples_list[0])

        with showing_search(self._explainer, int(usable.sum())) as counted:
            for i in counted(np.flatnonzero(usable)):
                try:
                    shown[i] = one(table.iloc[i : i + 1])
                except AdapterError as error:
                    failures.append(error)
        if failures and len(failures) == usable.sum():
            raise failures[0]
        if failures or not usable.all():
            log.info(
                "DiCE could not take %d of %d queries", len(failures) + (~usable).sum(), len(table)
            )
        return self._batch(shown, total_CFs, desired, options)

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
        """Build a new ``CounterfactualExplanations`` from released cells.

        It takes only queries and settings from `native`, and has importances if `native` has them.
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
        """Return what each released explanation of one query asks the person to change."""
        row = examples.test_instance_df.iloc[0]
        factual = {name: row[name] for name in self._features}
        return [
            entry.changes(factual)
            for entry in entries
            if isinstance(entry, GeneralizedCounterfactual)
        ]

    def _shares(self, changes: Sequence[set[str]]) -> dict[str, float]:
        """Return the share of explanations that change each feature; 0 if there are none."""
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
            If the call gives `cf_examples_list`; or if it gives a `stopping_threshold` other than
            DiCE's default, as answers from a catalogue promise no probability.
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
        usual = parameters.get("stopping_threshold")
        threshold = options.pop("stopping_threshold", None)
        if usual is not None and threshold not in (None, usual.default):
            raise AdapterError(
                "stopping_threshold asks for a probability, which answers from the catalogue do"
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
        """Build a ``CounterfactualExplanations`` from answers; see `restore`."""
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
        """Return the model's outcome at each query as DiCE shows it: a label, or a number."""
        explainer = self._explainer
        scores = np.asarray(ask_dice(lambda: explainer.model.get_output(table)))
        if explainer.model.model_type == "regressor":
            return [float(score) for score in np.ravel(scores)]
        if scores.ndim == 2 and scores.shape[1] > 1:
            places = [int(place) for place in scores.argmax(axis=1)]
        else:
            places = [round(float(score)) for score in np.ravel(scores)]
        return [self._shown_class(place) for place in places]

    def _unanswered(self, call: _Call, desired: Any, position: int, label: Any) -> Any:
        """Return DiCE's object for one query, with its settings and without counterfactuals."""
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

        It is what the call names, or else what the explainer is protected for, or else the other
        one of two classes, as DiCE resolves "opposite".
        """
        goal = self._desired if desired is None else desired
        if isinstance(goal, DesiredSet):
            return str(goal)
        if goal is not None and not callable(goal):
            return _printed(self._shown(goal))
        others = [each for each in map(self._shown, self._classes or ()) if each != label]
        if len(others) == 1:
            return _printed(others[0])
        if others:
            return str(Outcome(label, is_other=True))
        return "opposite"

    def _method(self, name: str) -> Callable[..., tuple[CounterfactualBatch, Native, pd.DataFrame]]:
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
                    f"DiCE takes no missing values; impute column {', '.join(missing)}"
                )
            bound.arguments[first] = table
            none_found: list[Exception] = []

            with showing_search(self._explainer, len(table)) as counted:
                method = getattr(_working_copy(self._explainer, counted), name)
                native = ask_dice(lambda: method(*bound.args, **bound.kwargs), none_found)
            if native is None:
                raise NoneFoundError(none_found[0])
            shown = [_shown(examples) for examples in native.cf_examples_list]
            queries = bound.arguments[first][self._features]
            batch = self._batch(shown, int(bound.arguments["total_CFs"]), desired, bound.arguments)
            return batch, native, queries

        return call

    def _goal(self, desired: Any) -> dict[str, Any]:
        """Return the options by which DiCE is told the outcome that is wanted.

        `desired` is what the call names. If it names nothing, DiCE is told what the explainer is
        protected for, unless "opposite" will do. Of several labels DiCE is told the first.
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

    def _shown_class(self, place: int) -> Any:
        """Return what DiCE's outcome column has for a class; text labels are always shown.

        Without the classes of its model, DiCE itself shows positions.
        """
        if self._classes is None or not 0 <= place < len(self._classes):
            return place
        label = self._classes[place]
        return label if self._has_labels or isinstance(label, str) else place

    def _shown(self, label: Any) -> Any:
        """Return what DiCE's outcome column has for a label."""
        if self._classes is None or label not in self._classes:
            return label
        return self._shown_class(self._classes.index(label))

    def _table(self, queries: Any) -> pd.DataFrame:
        """Copy the queries as DiCE needs them: its columns in its order, categories as text."""
        if not isinstance(queries, pd.DataFrame):
            raise AdapterError(
                f"DiCE takes queries as a DataFrame, not as {type(queries).__name__}"
            )
        interface = self._explainer.data_interface
        if missing := [name for name in interface.feature_names if name not in queries.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        table = queries[list(interface.feature_names)].copy(deep=True)
        # its categories are then text; it would cast "False" to True
        if hasattr(interface, "data_df"):
            for name in interface.categorical_feature_names:
                table[name] = table[name].astype(object).map(str, na_action="ignore")
        return table

    def _batch(
        self,
        shown: Sequence[pd.DataFrame | None],
        asked: int,
        desired: Any,
        options: Mapping[str, Any],
    ) -> CounterfactualBatch:
        frames: list[pd.DataFrame] = []
        slots: list[int] = []
        for i, frame in enumerate(shown):
            if frame is None:
                continue
            if missing := [name for name in self._features if name not in frame.columns]:
                raise AdapterError(f"DiCE's answer has no column {', '.join(missing)}")
            frames.append(frame[self._features].iloc[:asked])
            slots.extend(range(i * asked, i * asked + len(frames[-1])))
        found = (
            pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=self._features)
        )
        query = np.repeat(np.arange(len(shown)), asked)
        return CounterfactualBatch(
            found, np.asarray(slots, dtype=np.int64), query, desired, constraints_of(options)
        )

    def _restore_one(self, examples: Any, entries: Sequence[Explanation]) -> Any:
        from dice_ml.utils.serialize import DummyDataInterface

        outcome = examples.data_interface.outcome_name
        test = examples.test_instance_df
        columns = [*(name for name in test.columns if name != outcome), outcome]
        factual = pd.DataFrame({name: [test[name].iat[0]] for name in columns})
        factual[outcome] = [self._named(factual[outcome].iat[0])]
        own = {name: factual[name].tolist()[0] for name in columns}
        rows = [
            {**_like(cells, own), outcome: self._label(entry.outcome)}
            for entry, cells in zip(entries, released_cells(entries), strict=True)
            if isinstance(entry, GeneralizedCounterfactual) and cells
        ]
        frame = None
        if rows:
            # a column without ranges has the type that it has in DiCE's table
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
        if frame is not None:  # DiCE's own method reads text as numbers
            rebuilt.print_list = partial(_print_list, list(own.values()))
        return rebuilt

    def _named(self, outcome: Any) -> Any:
        """Return an outcome in DiCE's result with the label of a class, if labels are text.

        Where the model does not list its classes, DiCE has a position or a probability.
        """
        is_position = not self._has_labels and self._explainer.model.model_type == "classifier"
        if isinstance(outcome, str) or not is_position:
            return outcome
        label = self._shown_class(round(float(outcome)))
        return label if isinstance(label, str) else outcome

    def _label(self, certified: Outcome) -> Any:
        """Return the certified outcome as DiCE has it: of one class its label, else in words."""
        if certified.label is None or certified.is_other:
            return str(certified)
        return self._shown(certified.label)


def _arguments(
    method: str, signature: inspect.Signature, args: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments of a call by name; say what is wrong with one that does not fit.

    Raises
    ------
    AdapterError
        If an argument is missing or unknown. Python's text names parameters, and no value.
    """
    try:
        return signature.bind(*args, **named)
    except TypeError as error:
        problem = str(error)
    takes = ", ".join(signature.parameters)
    raise AdapterError(f"{method}: {problem}; it takes {takes}")


@dataclass(frozen=True)
class _Call:
    """A call of one of DiCE's methods: queries as DiCE has them, and its arguments by name."""

    table: pd.DataFrame
    options: Mapping[str, Any]


def _importances_of(method: str, options: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a call's result has importances of single queries, and of all of them."""
    if not method.endswith("importance"):
        return False, False
    if method == "local_feature_importance":
        return True, False
    return bool(options.get("local_importance")), bool(options.get("global_importance", True))


def ask_dice(
    call: Callable[[], Native], none_found: list[Exception] | None = None
) -> Native | None:
    """Call DiCE; None if it found nothing, with DiCE's own class of exception for that in
    `none_found`.
    """

    def nothing(error: Exception) -> bool:
        is_nothing = type(error).__name__ == "UserConfigValidationException" and str(
            error
        ).startswith("No counterfactuals found")
        if is_nothing and none_found is not None:
            none_found.append(type(error)("No counterfactuals found for any of the query points!"))
        return is_nothing

    try:
        return ask(call, nothing)
    except ExplainerError as error:
        raise ExplainerError(f"{error}{_likely_cause(error.__cause__)}") from error.__cause__


def _likely_cause(failure: BaseException | None) -> str:
    """Return the end of a message about a failure of DiCE, without any value."""
    text = ""
    with suppress(Exception):  # a model's own exception may fail to give its text
        text = str(failure)
    causes = [cause for part, cause in LIKELY_CAUSES.items() if part in text]
    likely = f", probably because {causes[0]}" if causes else ""
    return f"{likely}; the text of that error may quote rows and is in the traceback (__cause__)"


def _printed(outcome: Any) -> Any:
    """Return an outcome in a form that DiCE can write as its ``desired_class`` into JSON."""
    if isinstance(outcome, bool) or (isinstance(outcome, float) and outcome.is_integer()):
        return int(outcome)
    if isinstance(outcome, int):
        return outcome
    return str(outcome)


def _shown(examples: Any) -> pd.DataFrame | None:
    """Return what DiCE displays: the table after its sparsity step, if there is one."""
    for frame in (examples.final_cfs_df_sparse, examples.final_cfs_df):
        if frame is not None and len(frame):
            return pd.DataFrame(frame)
    return None


def _like(cells: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return cells in the types of the query's cells in DiCE's table, if no value changes."""
    found = dict(cells)
    for name, cell in cells.items():
        kind = type(own[name])
        if kind is str:
            found[name] = str(cell)
        elif kind in (int, float) and type(cell) in (int, float) and kind(cell) == cell:
            found[name] = kind(cell)
    return found


def _print_list(own: Sequence[Any], li: Sequence[Sequence[Any]], show_only_changes: bool) -> None:
    """Print rows as DiCE does, with a dash for unchanged values, for texts and numbers alike."""
    for row in li:
        shown = ["-" if _is_close(new, old) else new for new, old in zip(row, own, strict=True)]
        print(shown if show_only_changes else row)  # noqa: T201 - as DiCE's does


def _is_close(new: Any, old: Any) -> bool:
    if isinstance(new, str) or isinstance(old, str):
        return bool(new == old)
    return math.isclose(new, old, rel_tol=abs(old / 10_000))


def _working_copy(explainer: Any, counted: Callable[[Any], Any] = iter) -> Any:
    """Return a copy to call: same model and training table, own state, no progress bar.

    `counted` gets the queries of DiCE's loop in the place of the progress bar.
    """
    working = copy.copy(explainer)
    working.data_interface = copy.copy(explainer.data_interface)
    function: Any = getattr(type(explainer), "generate_counterfactuals", None)
    if isinstance(function, FunctionType) and "generate_counterfactuals" not in vars(explainer):
        # DiCE's progress bar cannot be switched off, so only this copy's loop gets another `tqdm`.
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
