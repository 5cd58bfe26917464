"""KAnonymizer: fits what answers requests, answers them, and returns and records the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from cfk_plugin.data.call_rules import CallRules, most_changes
from cfk_plugin.data.codes import Codes
from cfk_plugin.data.display import advance, card, doing, facts, heard
from cfk_plugin.data.estimator import BaseEstimator
from cfk_plugin.data.model import LabelModel, checked_later, thresholded
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.personal import age_columns, personal_columns
from cfk_plugin.data.policy import PrivacyPolicy, policy_or
from cfk_plugin.data.population import Population, check_population, configured_key
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.spark import is_spark_table
from cfk_plugin.data.tables import (
    Counterfactual,
    as_table,
    require_features,
    whole_number,
)
from cfk_plugin.errors import (
    CFKError,
    HostOnly,
    InputError,
    PersonalColumnWarning,
    PolicyError,
    is_refitting,
    quiet,
    warn,
)
from cfk_plugin.hookspecs import NativeStatus, Progress, Protector, ReleaseRecord
from cfk_plugin.metrics.provenance import environment_of, facts_of
from cfk_plugin.plugins import load_plugins, worst
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.answering import answer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.detection import Detector
from cfk_plugin.release.explanations import Explanations, Kind, ResultContext
from cfk_plugin.release.fail_closed import failing_closed, reason_of
from cfk_plugin.release.fit_checks import check, warn_of_wide_regions
from cfk_plugin.release.lookup import Lookup
from cfk_plugin.release.protector_choice import AUTO, choose_protector
from cfk_plugin.release.request import Groups, Request, Rows
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.tracking.logger import Track, observe

_log = logging.getLogger("cfk_plugin")
_TRIED = 256  # training rows on which the model is tried


class KAnonymizer(HostOnly, BaseEstimator):
    """Turns counterfactual instances into k-anonymous explanations with recounted certificates.

    Protects against linking an explanation to a person by quasi-identifiers: every region that
    leaves holds at least k people of the population, and by default k people with the desired
    outcome are mapped to it, with whom the model is consistent; see `PrivacyPolicy`. An attacker
    can compare several fits, unless `fit` gets the catalogue before it as ``previous``. Private
    values are released as the policy says.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``.
    method : str or Protector
        "auto": what the guarantee prescribes, "exact" for a lookup one. For a lookup guarantee
        also "grasp", "mondrian", the name of a plugin's protector, or a protector with its own
        settings.
    plugins : sequence
        Plugin objects or modules for this run, beside those found by entry points.
    random_state : int
        For protectors and samples that draw random numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    >>> population = Population.from_frame(train, schema)
    >>> _ = anonymizer.fit(population, model=lambda x: x.salary > 50, desired=True)
    >>> queries = pd.DataFrame({"age": [26], "salary": [30]})
    >>> str(anonymizer.explain(queries)[0].region["age"])
    '24–25'
    """

    policy_: PrivacyPolicy
    population_: Population | None  # None if the catalogue was loaded from a file
    goal_: DesiredOutcome
    model_: LabelModel
    later_: list[LabelModel]
    catalogue_: Catalogue | None  # None under a lookup guarantee
    lookup_: Lookup | None  # None under a catalogue
    detector_: Detector | None
    method_: str

    def __init__(
        self,
        *,
        policy: PrivacyPolicy | None = None,
        method: str | Protector = AUTO,
        plugins: Sequence[object] = (),
        random_state: int = 0,
    ) -> None:
        self.policy = policy
        self.method = method
        self.plugins = plugins
        self.random_state = random_state

    def __sklearn_clone__(self) -> KAnonymizer:
        """Return a new anonymizer with the same settings; plugins cannot be copied."""
        return KAnonymizer(**self.get_params(deep=False))

    def fit(
        self,
        population: Population,
        model: Any,
        desired: Any,
        *,
        threshold: float | None = None,
        later: Sequence[Any] = (),
        previous: Catalogue | str | Path | None = None,
    ) -> KAnonymizer:
        """Bind population, model and desired outcome; everything that can be refused is refused
        here.

        Parameters
        ----------
        population : Population
            The crowd to hide in: the rows that the explainer may return.
        model : object with ``predict``, or callable
            Returns one label per row; also a ``Booster`` of XGBoost or LightGBM and an
            ``InferenceSession`` of ONNX.
        desired : label, set of labels, (low, high), "opposite" or callable
            What a counterfactual must reach: one of the labels, or a number in the range (ends
            included, None for no end). A callable takes labels and returns booleans.
        threshold : float, optional
            Where the model returns probabilities: the least one at which the outcome is 1, or the
            second class; see `Thresholded`.
        later : sequence of models, optional
            Models that were trained again: on bootstraps or folds of the rows, or last months'
            models; eight are a good number. An answer of the catalogue then needs an outcome that
            each of these gives too. The policy's margin is used with it only if it is a number.
        previous : Catalogue or path, optional
            The catalogue that this one follows, or its file. An attacker may have both. A region
            stays, bounds and all, while at least k of the people for whom it was made have been in
            the table ever since, with the outcome under the model of each fit; otherwise it goes
            with its entries. New regions are made for newcomers, and new private values of at least
            2k of them. An attacker still sees which regions went, so that someone of their people
            left or has another outcome. ``catalogue_.changes`` counts what is lost. Both fits need
            the same key, and the schema's subject. Without `previous`, a fit is a release of its
            own.

        Returns
        -------
        KAnonymizer
            Itself.

        Raises
        ------
        PolicyError
            If k is above the number of people or of those with the outcome, l or t is asked without
            sensitive attributes, or the method cannot give the guarantee.
        ModelError
            If the model cannot be used.
        InputError
            If `population` is not one, the method is unknown, or a protector has the name of a
            built-in one.
        """
        vars(self).pop("catalogue_", None)  # a fit that fails leaves nothing that answers
        check_population(population)
        self.policy_ = policy_or(self.policy)
        check(self.policy_, self.method, population)
        whole_number("random_state", self.random_state, 0)
        models_later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
        if models_later and self.policy_.guarantee == "lookup":
            raise PolicyError('later= needs guarantee="catalogue"')
        if previous is not None and self.policy_.guarantee == "lookup":
            raise PolicyError('previous= needs guarantee="catalogue"')
        with doing("asking the model about the training rows"):
            self._learn(population, thresholded(model, threshold), desired, models_later, previous)
        return self

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Any,
        *,
        key: bytes | None = None,
        threshold: float | None = None,
        later: Sequence[Any] = (),
        plugins: Sequence[object] = (),
    ) -> KAnonymizer:
        """Return a fitted anonymizer for a catalogue that was saved, without training rows.

        It gives the same answers as the one whose ``catalogue_`` was saved. Counterfactuals cannot
        be examined there, so `transform` is not possible; counts of people that need rows are None.

        Parameters
        ----------
        path : str or Path
        model : object with ``predict``, or callable
            The model with which the catalogue was fitted.
        key : bytes, optional
            The key of the file; default: the environment variable ``CFK_KEY``.
        threshold : float, optional
            As in `fit`.
        later : sequence of models, optional
            The later models with which it was fitted.
        plugins : sequence

        Raises
        ------
        BundleError
            If the file is not a catalogue, was changed, or needs another key.
        ModelError
            If the model is not the one with which the catalogue was fitted.
        """
        models_later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
        file = CatalogueFile.read(path, configured_key(key))
        catalogue = Catalogue.of_file(file, thresholded(model, threshold), models_later)
        return cls.of_catalogue(catalogue, model, plugins=plugins)

    @classmethod
    def of_catalogue(
        cls, catalogue: Catalogue, model: Any, *, plugins: Sequence[object] = ()
    ) -> KAnonymizer:
        """Return a fitted anonymizer for a catalogue that was read from a file; see `load`."""
        anonymizer = cls(policy=catalogue.policy, plugins=plugins)
        anonymizer.policy_ = catalogue.policy
        anonymizer.manager_ = load_plugins(plugins)
        anonymizer.goal_ = catalogue.goal
        anonymizer.model_ = catalogue.model.label_model
        anonymizer.later_ = [later_model.label_model for later_model in catalogue.model.later]
        anonymizer.population_ = None
        anonymizer.lookup_ = None
        anonymizer.detector_ = None
        anonymizer._use(catalogue, model)
        return anonymizer

    def _learn(
        self,
        population: Population,
        model: Any,
        desired: Any,
        later: Sequence[Any],
        previous: Catalogue | str | Path | None,
    ) -> None:
        """Learn all attributes that end in an underscore, in the order in which they depend."""
        self.manager_ = load_plugins(self.plugins)
        self.population_ = population
        self.goal_ = DesiredOutcome.of(desired)
        features = population.schema.features
        self.model_ = LabelModel(model, features, self.goal_)
        self.later_ = [LabelModel(later_model, features, self.goal_) for later_model in later]
        self._check_outcomes(population)
        self.detector_ = None
        if population.whole is None:
            self.detector_ = Detector(
                population, self.policy_.near_native, random_state=self.random_state
            )
        if self.policy_.guarantee == "lookup":
            self.lookup_ = self._lookup(population)
            self.catalogue_ = None
            self._use(None, model)
            return
        self.lookup_ = None
        with doing("finding answers for the catalogue"):
            catalogue = Catalogue.build(
                population,
                self.policy_,
                self.goal_,
                self.model_,
                self.later_,
                self.random_state,
                previous,
            )
        warn_of_wide_regions(catalogue)
        self._use(catalogue, model)

    def _use(self, catalogue: Catalogue | None, model: Any) -> None:
        """Note the catalogue, and what every result states of its origin."""
        self.catalogue_ = catalogue
        self.explainer_sample_: dict[str, int] | None = None  # see `protect`
        versions = self.manager_.versions()
        self.method_ = "catalogue" if self.lookup_ is None else self.lookup_.method
        self._personal_columns = self._columns_to_warn_of()
        seed = None if self.population_ is None else self.random_state  # a file has no seed
        self._environment = environment_of(plugins=versions, seed=seed, model=model)
        self._provenance = {
            "method": self.method_,
            "population": self.fingerprint_,
            "plugins": ", ".join(f"{name} {version}" for name, version in versions.items()),
        }

    @property
    def schema_(self) -> Schema:
        """The schema of the training table."""
        if self.catalogue_ is not None:
            return self.catalogue_.schema
        return self._require_population("schema_").schema

    @property
    def fingerprint_(self) -> str:
        """The keyed fingerprint of the training table."""
        if self.catalogue_ is not None:
            return self.catalogue_.fingerprint
        return self._require_population("fingerprint_").fingerprint

    @property
    def n_people_(self) -> int:
        """The number of people in the training table."""
        if self.catalogue_ is not None:
            return self.catalogue_.n_people
        return self._require_population("n_people_").n_people

    @property
    def _facts(self) -> Mapping[str, Any]:
        """What runs state of the training table."""
        if self.catalogue_ is not None:
            return self.catalogue_.facts
        return facts_of(self._require_population("facts"), self.policy_.k)

    def _columns_to_warn_of(self) -> tuple[str, ...]:
        """Return columns whose change is worth a warning; a fit for an audit gives none."""
        if is_refitting():
            return ()
        return tuple(personal_columns(self.schema_.features))

    def _check_outcomes(self, population: Population) -> None:
        """Refuse a goal, or words for outcomes, that the model's labels do not fit."""
        labels = self.model_(population.frame.head(_TRIED)[list(population.schema.features)])
        self.goal_.check(self.model_.classes, labels)
        population.schema.wording.check_outcomes(self.model_.classes)

    def _lookup(self, population: Population) -> Lookup:
        """Return what generalises an explainer's counterfactuals."""
        protector, method = choose_protector(self.method, self.manager_.protectors())
        return Lookup.build(
            population, self.policy_, self.model_, protector, method, self.random_state
        )

    def transform(
        self,
        counterfactuals: pd.DataFrame | Sequence[Counterfactual],
        factuals: pd.DataFrame | None = None,
        *,
        instance_based: bool = False,
        max_changes: int | None = None,
        progress: Progress | None = None,
    ) -> Explanations:
        """Protect a table of counterfactual instances.

        Under a lookup guarantee, each is generalised and released. Under a catalogue none is
        released, because an answer near to it could reveal a row of the training data: they are
        examined for training rows, and each factual is answered as in `explain`.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
            Raw feature space, any column order; label, identifier and unknown columns are dropped.
        factuals : DataFrame, shape (n, n_features or more), optional
            The instance that each counterfactual explains. Needed for a catalogue, and if the
            schema says what cannot change. With ``desired="opposite"`` but without it, the model's
            outcome at the counterfactual counts as the desired one.
        instance_based : bool
            Whether the generator returns training rows or lightly changed ones.
        max_changes : int, optional
            As in `explain`; needs the factuals.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Explanations
            One entry per row, in order.

        Raises
        ------
        InputError
            If the table lacks features, has duplicate columns or no rows, or the factuals are
            needed and missing.
        """
        started = time.perf_counter()
        self._require_population("transform()")
        self._require_detector()
        features = self.schema_.features
        frame, number = as_table(counterfactuals, features)
        limit = most_changes(max_changes)
        rules = self.rules(max_changes=limit)
        if factuals is None:
            self._require_no_factuals(rules)
            numbers = number
            query = np.arange(len(frame))
            queries = None
        else:
            factuals = require_features(factuals, features, "factuals")
            if len(factuals) != len(frame):
                raise InputError(
                    f"{len(factuals)} factuals for {len(frame)} counterfactuals; give one each"
                )
            numbers, first, query = np.unique(number, return_index=True, return_inverse=True)
            queries = self.rows(factuals.iloc[first])
            codes = self.rows(factuals).codes
            if not np.array_equal(codes, queries.codes[query], equal_nan=True):
                raise InputError(
                    "counterfactuals of one query have different factuals; give each the factual of"
                    " its query, or another query number"
                )
        request = Request(
            numbers=numbers,
            queries=queries,
            query_of_slot=query,
            counterfactuals=self.rows(frame),
            slot_of_counterfactual=np.arange(len(frame)),
            goal=self.goal_,
            rules=rules,
            codes=self.codes_,
            progress=progress,
            started=started,
        )
        return self.answer(request, "table", instance_based=instance_based)

    def _require_no_factuals(self, rules: CallRules) -> None:
        """Raise if counterfactuals cannot be protected without the queries that they explain."""
        if self.catalogue_ is not None:
            raise InputError(
                "a catalogue answers the person whom a counterfactual explains; give the factuals"
                ' as well, or fit with PrivacyPolicy(guarantee="lookup")'
            )
        if rules.max_changes is not None:
            raise InputError("max_changes counts what a person changes; give the factuals as well")
        if rules.restricts(self.codes_):
            raise InputError("the schema says how features may change; give the factuals as well")

    def rows(self, frame: pd.DataFrame) -> Rows:
        """Encode the features of a table."""
        with quiet("a table cannot be read ({})", InputError, let=CFKError):
            return Rows.read(frame, self.codes_)

    def rules(
        self,
        features_to_vary: Any = "all",
        permitted_range: Any = None,
        max_changes: int | None = None,
    ) -> CallRules:
        """Return what a call permits; the arguments are those of `explain`."""
        return CallRules.read(self.codes_, features_to_vary, permitted_range, max_changes)

    @property
    def codes_(self) -> Codes:
        """The encoder of rows."""
        if self.catalogue_ is not None:
            return self.catalogue_.codes
        return self._require_population("codes_").row_codes

    def answer(
        self,
        request: Request,
        generator: str,
        *,
        instance_based: bool = False,
        depends_on_no_row: bool = False,
        track: Track = False,
    ) -> Explanations:
        """Answer a request; `explain`, `transform` and wrapped explainers end here.

        Parameters
        ----------
        request : Request
        generator : str
            What proposed the counterfactuals, for the record.
        instance_based : bool
            Whether the explainer returns training rows or lightly changed ones.
        depends_on_no_row : bool
            Whether the explainer's adapter declares that no counterfactual depends on a single
            training row. A catalogue's search then starts at the counterfactuals as well.
        track : bool, str or RunLogger
        """
        findings: list[NativeStatus | None] = [None] * len(request)
        with _showing_progress(request.progress) as progress:
            request = replace(request, progress=progress)
            try:
                self._detect(request, findings, instance_based=instance_based)
                with failing_closed():
                    explanations = self._explanations(request, depends_on_no_row)
            except CFKError as error:
                explanations = [*request.withheld(reason_of(error))]
        return self._result(request, explanations, findings, generator, track)

    def _detect(
        self,
        request: Request,
        findings: list[NativeStatus | None],
        *,
        instance_based: bool,
    ) -> None:
        """Note what detection finds of each counterfactual."""
        counterfactuals = request.counterfactuals
        if counterfactuals is None or not len(request.slot_of_counterfactual):
            return
        try:
            of_counterfactuals = self.findings(counterfactuals, instance_based=instance_based)
        except CFKError as error:
            if self.catalogue_ is None:
                raise
            _log.warning("counterfactuals were not examined: %s", error)
            return
        for slot, finding in zip(
            request.slot_of_counterfactual.tolist(), of_counterfactuals, strict=True
        ):
            findings[slot] = finding

    def _explanations(self, request: Request, depends_on_no_row: bool) -> list[Explanation]:
        """Return the explanations that the catalogue, or the lookup, has for a request."""
        if self.lookup_ is None and self.catalogue_ is not None and request.queries is not None:
            starts = request.counterfactuals if depends_on_no_row else None
            return answer(
                self.catalogue_, replace(request, counterfactuals=starts), request.queries
            )
        if self.lookup_ is not None and request.counterfactuals is not None:
            return self.lookup_.answer(request, request.counterfactuals)
        raise InputError  # no caller does: a catalogue gets queries, and a lookup counterfactuals

    def findings(
        self, counterfactuals: Rows, *, instance_based: bool
    ) -> tuple[NativeStatus | None, ...]:
        """Return what detection finds of each counterfactual.

        Plugins may make findings worse, never better.

        Raises
        ------
        PluginError
            If detection fails.
        PolicyError
            If not all training rows are in memory.
        """
        detector = self._require_detector()
        with failing_closed():
            findings = detector.find_codes(counterfactuals.codes, instance_based=instance_based)
            if "cfk_detect" not in self.manager_.hooks:
                return findings
            population = self._require_population("detection")
            by_plugins = self.manager_.detect(counterfactuals.frame, population)
            return tuple(worst(*pair) for pair in zip(findings, by_plugins, strict=True))

    def explain(
        self,
        queries: pd.DataFrame,
        *,
        answers: int = 1,
        desired: Any = None,
        features_to_vary: str | Sequence[str] = "all",
        permitted_range: Mapping[str, Sequence[Any]] | None = None,
        max_changes: int | None = None,
        progress: Progress | None = None,
        track: Track = False,
        groups: str | None = None,
        keep: Sequence[str] = (),
    ) -> Explanations:
        """Answer queries from the catalogue with the nearest answers that are true for the person
        who asks.

        True: the model gives the desired outcome, with the margin, for exactly what the answer
        advises. Needs ``guarantee="catalogue"``. An answer depends only on the query, the catalogue
        and the model: anyone who keeps asking learns the catalogue and where the model's outcome
        changes.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more)
            Or a DataFrame of Spark: its workers answer the queries, and the result is a table of
            Spark; see `cfk_plugin.release.spark`.
        answers : int
            How many answers to give to each query, from near to far. Of any two, each asks for at
            most half of some change that the other asks for, or for another category. If there are
            fewer such answers, the others are withheld as ``no_other_answer``.
        desired : label, optional
            The outcome that this call asks for: where the anonymizer was fitted for "opposite", one
            of the model's labels. Default: what it was fitted for.
        features_to_vary : "all" or sequence of str
            Features that an answer may ask to change; it leaves the others as they are. What the
            schema declares immutable, monotone or never advised holds in addition.
        permitted_range : mapping of feature to range, optional
            What an answer may change a feature to: ``[low, high]`` for a number, a list of values
            for all else.
        max_changes : int, optional
            How many features an answer may ask to change: those that its sentence lists. If there
            is no such answer, it is withheld as ``no_actionable_answer``.
        progress : callable, optional
            Called with (done, total).
        track : bool, str or RunLogger
            Whether to log the result to MLflow, or the name of the experiment to log to.
        groups : str, optional
            Column that divides those who ask into groups in the logged runs; see
            `Explanations.by_group`.
        keep : sequence of str
            Columns of a table of Spark that stay next to its answers, such as an id.

        Returns
        -------
        Explanations
            `answers` entries per query, in order. Of a table of Spark, a lazy table of records.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        InputError
            As `transform`; also if a constraint does not name a feature, is empty, or is outside of
            what is declared, or `max_changes` is no whole number from 1 on.
        """
        started = time.perf_counter()
        self._require_catalogue("explain()")
        if is_spark_table(queries):
            if desired is not None or progress is not None or track or groups is not None:
                raise InputError(
                    "desired=, progress=, track= and groups= are not for tables of Spark; fit for"
                    " the outcome, and log what you read from the result"
                )
            from cfk_plugin.release.spark import explained  # it imports this module

            constraints = {
                "answers": whole_number("answers", answers),
                "features_to_vary": features_to_vary,
                "permitted_range": permitted_range,
                "max_changes": most_changes(max_changes),
            }
            of_spark: Explanations = explained(self, queries, constraints, keep)
            return of_spark
        if len(keep):
            raise InputError("keep= is for tables of Spark; other answers are in order")
        frame = require_features(queries, self.schema_.features, "queries")
        positions = np.arange(len(frame))
        request = Request(
            numbers=positions,
            queries=self.rows(frame),
            query_of_slot=np.repeat(positions, whole_number("answers", answers)),
            goal=self.goal_of_call(desired),
            rules=self.rules(features_to_vary, permitted_range, most_changes(max_changes)),
            codes=self.codes_,
            progress=progress,
            groups=Groups.read(queries, groups),
            started=started,
        )
        return self.answer(request, "catalogue", track=track)

    def published(self) -> Explanations:
        """Return the whole catalogue, entry by entry, in the form in which it can be published.

        All answers are made of it and the model. The private values of an entry belong to at least
        k people or to no one. It does not hide who may be in the table. The order of entries
        follows from what they say.

        If an earlier catalogue of the same people was published, and `fit` did not get it as
        ``previous``, an attacker who compares the two learns something about the people who joined
        or left.

        Returns
        -------
        Explanations
            Entry i is answer i; none is withheld.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        ModelError, PluginError
            If the model, or a plugin, fails.
        """
        catalogue = self._require_catalogue("published()")
        entries = catalogue.published()
        nothing = np.empty(0, dtype=np.int64)
        request = Request(
            numbers=nothing,
            queries=None,
            query_of_slot=nothing,
            goal=self.goal_,
            rules=self.rules(),
            codes=self.codes_,
        )
        return self._result(request, entries, None, "catalogue", kind="catalogue")

    def _require_catalogue(self, caller: str) -> Catalogue:
        """Return the catalogue for a method of this class; refuse if there is none."""
        self._check_fitted()
        if self.catalogue_ is None:
            raise PolicyError(
                f'{caller} needs a catalogue: fit with PrivacyPolicy(guarantee="catalogue")'
            )
        return self.catalogue_

    def _require_population(self, caller: str) -> Population:
        """Return the training table; refuse if a catalogue was loaded without it."""
        self._check_fitted()
        if self.population_ is None:
            raise PolicyError(
                f"{caller} needs the training table, and a loaded catalogue only answers queries:"
                " use explain()"
            )
        return self.population_

    def _require_detector(self) -> Detector:
        """Return the detector; refuse if not all training rows are in memory."""
        if self.detector_ is None:
            raise PolicyError(
                "counterfactuals can only be compared with training rows in memory: fit with"
                " Population.from_frame, or use explain()"
            )
        return self.detector_

    def goal_of_call(self, desired: Any) -> DesiredOutcome:
        """Return the goal of a call, which may name an outcome itself.

        Refused is an outcome other than the one protected for and, where only eligible people
        count, another range: which ranges are answered would reveal people's outcomes.
        """
        if desired is None:
            return self.goal_
        goal = self.goal_.of_call(desired, self.model_.classes)
        if self.policy_.counts_eligible and not self.goal_.keeps_classes_whole(goal):
            raise InputError(
                "the call asks for a part of the outcomes, and the k people are those with the"
                " outcome that was protected for; protect the explainer with desired=(low, high) or"
                " a set, and ask for the same"
            )
        return goal

    def _result(
        self,
        request: Request,
        explanations: Sequence[Explanation],
        findings: Sequence[NativeStatus | None] | None,
        generator: str,
        track: Track = False,
        *,
        kind: Kind = "answers",
    ) -> Explanations:
        """Record explanations, tell plugins, and return them in order.

        They are withheld if `track` asks for records, and none can be kept.
        """
        tolerance = None if self.detector_ is None else self.detector_.used
        index = None
        if request.queries is not None:
            index = request.queries.index.take(request.query_of_slot)
        context = ResultContext(
            {**self._facts, "tolerance": tolerance},
            {**self._environment, "generator": generator},
            sample=self.explainer_sample_,
            kind=kind,
            wording=self.schema_.wording,
            is_for_people=request.queries is not None,
            index=index,
        )
        result = Explanations(
            explanations,
            policy=self.policy_,
            columns=self.schema_.features,
            findings=findings,
            n_people=self.n_people_,
            provenance={**self._provenance, "generator": generator},
            about=context.of_call(explanations, request.started, request.groups),
        )
        if not observe(result, track):
            result = result.without_record()
        self._warn_of_personal_columns(result, request)
        if "cfk_released" in self.manager_.hooks:
            for explanation in result:
                self.manager_.released(
                    release_record(
                        explanation,
                        self.method_,
                        self.policy_.sha256,
                        self.fingerprint_,
                    )
                )
        return result

    def _warn_of_personal_columns(
        self, explanations: Sequence[Explanation], request: Request
    ) -> None:
        """Warn, once per fit, if answers change who a person is and nobody said whether they can.

        The warning names columns, and no value.
        """
        decided = request.decided_features
        names = [name for name in self._personal_columns if name not in decided]
        if not names or request.queries is None:
            return
        rows = request.queries.frame[names].to_dict("records")
        row_of_number = dict(zip(request.numbers.tolist(), rows, strict=True))
        changed: set[str] = set()
        for explanation in explanations:
            if isinstance(explanation, GeneralizedCounterfactual):
                changed |= explanation.changes(row_of_number[explanation.query])
            if len(changed) == len(names):
                break
        if changed:
            self._personal_columns = ()
            columns = [name for name in names if name in changed]
            warn(_what_nobody_can_change(columns), PersonalColumnWarning)

    def _check_fitted(self) -> None:
        if not hasattr(self, "catalogue_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")

    def _repr_html_(self) -> str:
        policy = getattr(self, "policy_", self.policy or PrivacyPolicy())
        rows = {
            "policy": f"k = {policy.k}, {policy.guarantee}",
            "not stopped": ", ".join(policy.not_stopped),
        }
        if not hasattr(self, "catalogue_"):
            return card("KAnonymizer, not fitted", f"{policy.promise}.", facts(rows))
        rows |= {"method": self.method_, "people": f"{self.n_people_:,}"}
        if self.catalogue_ is not None:
            rows |= {
                "groups of people": f"{self.catalogue_.n_regions:,}",
                "answers in the catalogue": f"{self.catalogue_.n_entries:,}",
            }
        return card("KAnonymizer", f"{policy.promise}.", facts(rows))

    def _counts(self) -> str:
        return f"policy={self.policy!r}, method={getattr(self.method, 'name', self.method)!r}"


@contextmanager
def _showing_progress(progress: Progress | None) -> Iterator[Progress]:
    """Yield a callback that shows progress: by the user's own callable, or else as a line."""
    if progress is None:
        with doing("explaining"):
            yield advance
        return
    with heard(progress) as shown_progress:
        yield shown_progress


def _what_nobody_can_change(columns: Sequence[str]) -> str:
    """Return the text of a warning about columns that answers change."""
    listed = ", ".join(f'"{name}"' for name in columns)
    text = (
        f"answers tell people to change {', '.join(columns)}. If nobody can change that, say so:"
        f" Schema.from_frame(..., immutable=[{listed}])"
    )
    ages = age_columns(columns)
    if ages:
        text += f'. What may only grow is monotone={{"{ages[0]}": "increase"}}'
    return text


def release_record(
    entry: Explanation, method: str, policy_hash: str, population: str = ""
) -> ReleaseRecord:
    """Return what plugins are told of an explanation; it has no value of any attribute."""
    record = ReleaseRecord(
        status=entry.status, method=method, policy_hash=policy_hash, population=population
    )
    if isinstance(entry, GeneralizedCounterfactual):
        certificate = entry.certificate
        return replace(record, k=certificate.k, ncp=certificate.ncp, pureness=certificate.pureness)
    if isinstance(entry, Withheld):
        return replace(record, reason=entry.reason)
    return replace(record, population="")
