"""KAnonymizer: fits a catalogue or a lookup, answers requests from it, and records the results."""

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
from cfk_plugin.release.fail_closed import failing_closed, log_failure, reason_of
from cfk_plugin.release.fit_checks import check, warn_of_wide_regions
from cfk_plugin.release.lookup import Lookup
from cfk_plugin.release.protector_choice import AUTO, choose_protector
from cfk_plugin.release.request import Groups, Request, Rows
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.tracking.logger import Track, observe

_log = logging.getLogger("cfk_plugin")
_N_LABELLED = 256  # training rows that the model labels to check the desired outcome


class KAnonymizer(HostOnly, BaseEstimator):
    """Make k-anonymous counterfactual explanations with recounted certificates.

    It protects against an attacker who links an explanation to a person by quasi-identifiers: every
    released region contains at least k people of the population. By default, at least k people with
    the desired outcome belong to the region, and the model gives them this outcome with the
    released private values too; see `PrivacyPolicy`. An attacker can compare the results of several
    fits, unless `fit` gets the earlier catalogue as ``previous``. The policy decides which private
    values are released.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        By default ``PrivacyPolicy()``.
    method : str or Protector
        "auto" is the method of the guarantee; with the lookup guarantee, it is "exact". The lookup
        guarantee also accepts "grasp", "mondrian", the name of a plugin's protector, or a protector
        object.
    plugins : sequence
        Plugin objects or modules, in addition to the installed plugins.
    random_state : int
        Seed of protectors and samples.

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
    '24–26'
    """

    policy_: PrivacyPolicy
    population_: Population | None  # None if the catalogue was loaded from a file
    goal_: DesiredOutcome
    model_: LabelModel
    later_: list[LabelModel]
    catalogue_: Catalogue | None  # None with the lookup guarantee
    lookup_: Lookup | None  # None with a catalogue
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
        """Return a new anonymizer with the same settings. Plugins are shared, not copied."""
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
        """Build the catalogue, or prepare the lookup, for a desired outcome.

        All settings are checked here, before the first query.

        Parameters
        ----------
        population : Population
            The training rows, among which people are counted.
        model : object with ``predict``, or callable
            Returns one label per row. A ``Booster`` of XGBoost or LightGBM and an
            ``InferenceSession`` of ONNX work too.
        desired : label, set of labels, (low, high), "opposite" or callable
            The outcome that explanations reach: one of the labels, a number in the range (ends
            included, None for no end), or any outcome other than the query's. A callable takes
            labels and returns booleans.
        threshold : float, optional
            For a model that returns probabilities: the outcome is 1, or the second class, if the
            probability is at least this value; see `Thresholded`.
        later : sequence of models, optional
            Models that were trained again, for example on bootstraps or folds of the rows; eight
            are a good number. Answers of the catalogue then have the desired outcome under each of
            these models too. The margin "auto" is then 0.
        previous : Catalogue or path, optional
            The earlier catalogue or its file, which an attacker may compare with the new one. A
            region stays unchanged while at least k of its first members have been in the table at
            every fit, with the outcome; otherwise it is dropped with its entries. New regions are
            made for new people, and new private values need at least 2k of them. An attacker still
            sees which regions were dropped, so that at least one of their members left or has
            another outcome. ``catalogue_.changes`` counts the losses. Both fits need the same key,
            and the schema needs a subject.

        Returns
        -------
        KAnonymizer
            The fitted anonymizer itself.

        Raises
        ------
        PolicyError
            If k is above the number of people or of people with the outcome, the policy has l or t
            and the schema has no sensitive attribute, or the method cannot give the guarantee.
        ModelError
            If the model cannot be used.
        InputError
            If `population` is not a `Population`, the method is unknown, or a protector has the
            name of a built-in protector.
        """
        vars(self).pop("catalogue_", None)  # if the fit fails, the anonymizer is not fitted
        check_population(population)
        self.policy_ = policy_or(self.policy)
        check(self.policy_, self.method, population)
        whole_number("random_state", self.random_state, 0)
        models_later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
        if models_later and self.policy_.guarantee == "lookup":
            raise PolicyError('later= needs guarantee="catalogue"')
        if previous is not None and self.policy_.guarantee == "lookup":
            raise PolicyError('previous= needs guarantee="catalogue"')
        with doing("labelling the training rows"):
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
        """Return a fitted anonymizer for the file of a catalogue, without training rows.

        `explain` gives the same answers as the anonymizer that saved its ``catalogue_``.
        `transform` needs training rows and raises. Counts of people that need rows are None.

        Parameters
        ----------
        path : str or Path
            A file that `Catalogue.save` wrote.
        model : object with ``predict``, or callable
            The model that the catalogue was fitted with.
        key : bytes, optional
            The key of the file; by default, the environment variable ``CFK_KEY``.
        threshold : float, optional
            As in `fit`.
        later : sequence of models, optional
            The later models that the catalogue was fitted with.
        plugins : sequence
            As in the constructor.

        Returns
        -------
        KAnonymizer

        Raises
        ------
        BundleError
            If the file is not a catalogue, has been changed, or needs another key.
        ModelError
            If the model differs from the one that the catalogue was fitted with.
        """
        models_later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
        file = CatalogueFile.read(path, configured_key(key))
        catalogue = Catalogue.of_file(file, thresholded(model, threshold), models_later)
        return cls.of_catalogue(catalogue, model, plugins=plugins)

    @classmethod
    def of_catalogue(
        cls, catalogue: Catalogue, model: Any, *, plugins: Sequence[object] = ()
    ) -> KAnonymizer:
        """Return a fitted anonymizer for a catalogue from a file; see `load`."""
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
        """Set the fitted attributes, which end in an underscore."""
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
        """Store the catalogue, and the facts about the fit that every result records."""
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
        """Facts about the training table that runs log."""
        if self.catalogue_ is not None:
            return self.catalogue_.facts
        return facts_of(self._require_population("facts"), self.policy_.k)

    def _columns_to_warn_of(self) -> tuple[str, ...]:
        """Return columns such as age and sex, whose change leads to a warning.

        A fit for an audit returns none.
        """
        if is_refitting():
            return ()
        return tuple(personal_columns(self.schema_.features))

    def _check_outcomes(self, population: Population) -> None:
        """Raise if the desired outcome, or the wording of outcomes, does not fit the labels."""
        features = list(population.schema.features)
        labels = self.model_(population.frame.head(_N_LABELLED)[features])
        self.goal_.check(self.model_.classes, labels)
        population.schema.wording.check_outcomes(self.model_.classes)

    def _lookup(self, population: Population) -> Lookup:
        """Return the lookup, which generalises an explainer's counterfactuals."""
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
        """Protect a table of counterfactuals.

        With the lookup guarantee, each counterfactual is generalised and released. With a
        catalogue, no counterfactual is released, because an answer near to it could reveal a
        training row: they are compared with the training rows, for the record, and each factual is
        answered as in `explain`.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
            In original units, with columns in any order. Other columns are ignored.
        factuals : DataFrame, shape (n, n_features or more), optional
            The query of each counterfactual. Required for a catalogue, and if the schema restricts
            changes. Without it, ``desired="opposite"`` means the model's outcome at the
            counterfactual.
        instance_based : bool
            Whether the explainer returns training rows, or such rows with small changes.
        max_changes : int, optional
            As in `explain`; needs the factuals.
        progress : callable, optional
            Called with the numbers (done, total) of counterfactuals.

        Returns
        -------
        Explanations
            One explanation per row, in order.

        Raises
        ------
        InputError
            If the table lacks features, has duplicate columns or no rows, or the factuals are
            required and missing.
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
                    f"{len(factuals)} factuals for {len(frame)} counterfactuals; give one factual"
                    " for each"
                )
            numbers, first, query = np.unique(number, return_index=True, return_inverse=True)
            queries = self.rows(factuals.iloc[first])
            codes = self.rows(factuals).codes
            if not np.array_equal(codes, queries.codes[query], equal_nan=True):
                raise InputError(
                    "counterfactuals of one query have different factuals; give each the factual of"
                    " its query, or number the queries differently"
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
                "a catalogue answers the queries of the counterfactuals; give the factuals as well,"
                ' or fit with PrivacyPolicy(guarantee="lookup")'
            )
        if rules.max_changes is not None:
            raise InputError("max_changes needs the person's values; give the factuals as well")
        if rules.restricts(self.codes_):
            raise InputError("the schema restricts changes; give the factuals as well")

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
        """Return the constraints of a call; the arguments are those of `explain`."""
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
        """Answer the request of `explain`, `transform` or a protected explainer.

        If anything fails, all explanations are withheld.

        Parameters
        ----------
        request : Request
        generator : str
            The name of the explainer, for the record.
        instance_based : bool
            Whether the explainer returns training rows, or such rows with small changes.
        depends_on_no_row : bool
            Whether the explainer's adapter declares that no counterfactual depends on a single
            training row. A catalogue's search then also starts at the counterfactuals.
        track : bool, str or RunLogger
            As in `explain`.
        """
        findings: list[NativeStatus | None] = [None] * len(request)
        with _showing_progress(request.progress) as progress:
            request = replace(request, progress=progress)
            try:
                self._detect(request, findings, instance_based=instance_based)
                with failing_closed():
                    explanations = self._explanations(request, depends_on_no_row)
            except CFKError as error:
                log_failure(error)
                explanations = [*request.withheld(reason_of(error))]
        return self._result(request, explanations, findings, generator, track)

    def _detect(
        self,
        request: Request,
        findings: list[NativeStatus | None],
        *,
        instance_based: bool,
    ) -> None:
        """Compare each counterfactual with the training rows; write into `findings` by slot."""
        counterfactuals = request.counterfactuals
        if counterfactuals is None or not len(request.slot_of_counterfactual):
            return
        try:
            status = self.findings(counterfactuals, instance_based=instance_based)
        except CFKError as error:
            if self.catalogue_ is None:
                raise
            _log.warning("counterfactuals were not compared with training rows: %s", error)
            return
        for slot, finding in zip(request.slot_of_counterfactual.tolist(), status, strict=True):
            findings[slot] = finding

    def _explanations(self, request: Request, depends_on_no_row: bool) -> list[Explanation]:
        """Return the explanations of the catalogue, or of the lookup, for a request."""
        if self.lookup_ is None and self.catalogue_ is not None and request.queries is not None:
            starts = request.counterfactuals if depends_on_no_row else None
            return answer(
                self.catalogue_, replace(request, counterfactuals=starts), request.queries
            )
        if self.lookup_ is not None and request.counterfactuals is not None:
            return self.lookup_.answer(request, request.counterfactuals)
        raise InputError  # not reached: a catalogue gets queries, and a lookup counterfactuals

    def findings(
        self, counterfactuals: Rows, *, instance_based: bool
    ) -> tuple[NativeStatus | None, ...]:
        """Return for each counterfactual whether it equals a training row, or nearly does.

        Plugins may make a finding worse, never better.

        Raises
        ------
        PluginError
            If detection fails.
        PolicyError
            If this process does not have all training rows.
        """
        detector = self._require_detector()
        with failing_closed():
            findings = detector.find_codes(counterfactuals.codes, instance_based=instance_based)
            if "cfk_detect" not in self.manager_.hooks:
                return findings
            population = self._require_population("detection")
            plugin_findings = self.manager_.detect(counterfactuals.frame, population)
            return tuple(worst(*pair) for pair in zip(findings, plugin_findings, strict=True))

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
        """Answer queries from the catalogue, with the nearest answers that are true for the person.

        An answer is true if the model gives the desired outcome, with the margin, for the values
        that the answer advises. Needs ``guarantee="catalogue"``. An answer depends only on the
        query, the catalogue and the model. An attacker with many queries can learn the whole
        catalogue and the model's decision boundary.

        Parameters
        ----------
        queries : DataFrame, shape (n_queries, n_features or more)
            Instances to explain, in original units. The workers answer the queries of a Spark
            DataFrame, and the result is a Spark DataFrame; see `cfk_plugin.release.spark`.
        answers : int
            The number of answers for each query, from near to far. Of any two answers, each asks
            for at most half of a change of the other, or for another category. If there are too
            few such answers, the others are withheld as ``no_other_answer``.
        desired : label, optional
            The desired outcome of this call: one of the model's labels, if the anonymizer was
            fitted for "opposite". By default, the outcome of the fit.
        features_to_vary : "all" or sequence of str
            The features that an answer may ask to change. The schema's restrictions (immutable,
            monotone, never advised) also apply.
        permitted_range : mapping of feature to range, optional
            The values that an answer may change a feature to: ``[low, high]`` for a number, a list
            of values for any other feature.
        max_changes : int, optional
            The largest number of features that an answer may ask to change. If there is no such
            answer, it is withheld as ``no_actionable_answer``.
        progress : callable, optional
            Called with the numbers (done, total) of queries.
        track : bool, str or RunLogger
            Whether to log the result to MLflow, or the name of the experiment to log to.
        groups : str, optional
            Column that divides applicants into groups in the logged runs; see
            `Explanations.by_group`.
        keep : sequence of str
            Columns of a Spark DataFrame to copy to the result, such as an id.

        Returns
        -------
        Explanations
            `answers` explanations for each query, in order. For a Spark DataFrame, a lazy Spark
            DataFrame of records.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        InputError
            If `queries` lacks features, has duplicate columns or no rows; if a constraint does not
            name a feature, is empty, or is outside the declared values; or if `max_changes` is not
            a whole number of at least 1.
        """
        started = time.perf_counter()
        self._require_catalogue("explain()")
        if is_spark_table(queries):
            if desired is not None or progress is not None or track or groups is not None:
                raise InputError(
                    "desired=, progress=, track= and groups= are not for Spark tables; fit for"
                    " the outcome, and log the records that you read from the result"
                )
            from cfk_plugin.release.spark import explained  # not at the top: it imports this module

            constraints = {
                "answers": whole_number("answers", answers),
                "features_to_vary": features_to_vary,
                "permitted_range": permitted_range,
                "max_changes": most_changes(max_changes),
            }
            spark_table: Explanations = explained(self, queries, constraints, keep)
            return spark_table
        if len(keep):
            raise InputError(
                "keep= is for Spark tables; here, the answers have the order of the queries"
            )
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
        """Return all entries of the catalogue, which can be published.

        The private values of an entry belong to at least k people or to no one. The order of the
        entries discloses nothing more. The publication does not hide who may be in the table.

        If an earlier catalogue of the same people was published, and `fit` did not get it as
        ``previous``, an attacker who compares the two can learn about people who joined or left.

        Returns
        -------
        Explanations
            One released explanation per entry. Its `query` is its position.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        ModelError, PluginError
            If the model, or a plugin, fails.
        """
        catalogue = self._require_catalogue("published()")
        entries = catalogue.published()
        no_positions = np.empty(0, dtype=np.int64)
        request = Request(
            numbers=no_positions,
            queries=None,
            query_of_slot=no_positions,
            goal=self.goal_,
            rules=self.rules(),
            codes=self.codes_,
        )
        return self._result(request, entries, None, "catalogue", kind="catalogue")

    def _require_catalogue(self, caller: str) -> Catalogue:
        """Return the catalogue, or raise an error that names the calling method."""
        self._check_fitted()
        if self.catalogue_ is None:
            raise PolicyError(
                f'{caller} needs a catalogue: fit with PrivacyPolicy(guarantee="catalogue")'
            )
        return self.catalogue_

    def _require_population(self, caller: str) -> Population:
        """Return the training table, or raise if the catalogue was loaded without it."""
        self._check_fitted()
        if self.population_ is None:
            raise PolicyError(
                f"{caller} needs the training table, which a loaded catalogue does not have; use"
                " explain()"
            )
        return self.population_

    def _require_detector(self) -> Detector:
        """Return the detector, or raise if this process does not have all training rows."""
        if self.detector_ is None:
            raise PolicyError(
                "counterfactuals can only be compared with training rows in memory: fit with"
                " Population.from_frame, or use explain()"
            )
        return self.detector_

    def goal_of_call(self, desired: Any) -> DesiredOutcome:
        """Return the goal of a call that may name a desired outcome.

        Raises `InputError` if the goal of the fit does not include the outcome. If k counts people
        with the desired outcome, the call cannot name a part of it, such as a narrower range:
        the ranges that have an answer would reveal people's outcomes.
        """
        if desired is None:
            return self.goal_
        goal = self.goal_.of_call(desired, self.model_.classes)
        if self.policy_.counts_eligible and not self.goal_.keeps_classes_whole(goal):
            raise InputError(
                "the call desires only a part of the outcomes that the fit protects, and k counts"
                " people with any of these; protect the explainer with the same desired=(low, high)"
                " or set as the call"
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
        """Log explanations, pass them to plugins, and return them as `Explanations`.

        If `track` requires a record and it cannot be written, all of them are withheld.
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
        """Warn, once per fit, if answers change columns such as age that the schema leaves open.

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
            warn(_text_about_personal_columns(columns), PersonalColumnWarning)

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
    """Yield a progress callback: the caller's, or one that draws a line on a terminal."""
    if progress is None:
        with doing("explaining"):
            yield advance
        return
    with heard(progress) as shown_progress:
        yield shown_progress


def _text_about_personal_columns(columns: Sequence[str]) -> str:
    """Return the text of a warning about columns that answers change."""
    listed = ", ".join(f'"{name}"' for name in columns)
    text = (
        f"answers ask people to change {', '.join(columns)}. If people cannot change a column,"
        f" declare it: Schema.from_frame(..., immutable=[{listed}])"
    )
    ages = age_columns(columns)
    if ages:
        text += f'. If it can only grow, declare monotone={{"{ages[0]}": "increase"}}'
    return text


def release_record(
    entry: Explanation, method: str, policy_hash: str, population: str = ""
) -> ReleaseRecord:
    """Return the record of an explanation for plugins, which contains no value of a row."""
    record = ReleaseRecord(
        status=entry.status, method=method, policy_hash=policy_hash, population=population
    )
    if isinstance(entry, GeneralizedCounterfactual):
        certificate = entry.certificate
        return replace(record, k=certificate.k, ncp=certificate.ncp, pureness=certificate.pureness)
    if isinstance(entry, Withheld):
        return replace(record, reason=entry.reason)
    return replace(record, population="")
