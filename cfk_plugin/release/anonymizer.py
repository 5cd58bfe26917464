"""KAnonymizer: fits the pipeline from raw counterfactuals to verified explanations, and returns its
results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Rules, decided_features, most_changes, rules_of
from cfk_plugin.data.display import advance, card, doing, facts, heard
from cfk_plugin.data.encoded_table import Counterfactual, as_table, require_features, whole_number
from cfk_plugin.data.margin import checked_later, requirement_of
from cfk_plugin.data.model import LabelModel, thresholded
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.personal import age_columns, personal_columns
from cfk_plugin.data.policy import PrivacyPolicy, SearchStart, policy_or
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.region import Region
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import (
    HostOnly,
    InputError,
    NotFittedError,
    PersonalColumnWarning,
    PolicyError,
    is_refitting,
    warn,
)
from cfk_plugin.hookspecs import NativeStatus, Progress, Protector, ReleaseRecord
from cfk_plugin.metrics.provenance import environment_of, facts_of
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection.answers.request import SearchOptions
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.records.logger import Track, observe
from cfk_plugin.release.detection import Detector
from cfk_plugin.release.explanations import Explanations, Kind, Request, ResultContext
from cfk_plugin.release.fit_checks import check
from cfk_plugin.release.guarantee_choice import make_guarantee
from cfk_plugin.release.pipeline import Pipeline
from cfk_plugin.release.protector_choice import AUTO
from cfk_plugin.release.publication import publish
from cfk_plugin.release.results import (
    Explanation,
    GeneralizedCounterfactual,
    Withheld,
)


class KAnonymizer(HostOnly):
    """Turns counterfactual instances into k-anonymous explanations with recounted certificates.

    Protects against linking an explanation to a person by quasi-identifiers: every region that
    leaves holds at least k people of the population, and by default k people with the desired
    outcome are mapped to it, with whom the model is consistent; see `PrivacyPolicy`. Each fit is a
    release of its own: an attacker can compare those of several fits. Private values are released
    as the policy says.

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
    change_cost : float
        What each private attribute that an answer asks to change adds to the distance by which a
        catalogue's answers are chosen, where 1 is the whole range of a number. A quasi-identifier
        outside of the answer's region always adds about 0.1. With 0, answers are chosen by distance
        alone, and some ask for many changes of which several are tiny.
    rounding : bool
        Whether the numbers that a catalogue's answers ask to change are rounded, away from the
        person's own, to multiples of five in the third significant digit: "an income of 1,250
        instead of 980" rather than 1,234. A rounded number leaves only if the outcome holds
        wherever the exact one's would have to.
    seed : int
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
    >>> str(anonymizer.transform(train.head(1))[0].region["age"])
    '24–25'
    """

    def __init__(
        self,
        *,
        policy: PrivacyPolicy | None = None,
        method: str | Protector = AUTO,
        plugins: Sequence[object] = (),
        change_cost: float = 0.1,
        rounding: bool = True,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.method = method
        self.plugins = plugins
        self.change_cost = change_cost
        self.rounding = rounding
        self.seed = seed

    def unfitted(self) -> KAnonymizer:
        """Return a new anonymizer with the same settings."""
        return KAnonymizer(
            policy=self.policy,
            method=self.method,
            plugins=self.plugins,
            change_cost=self.change_cost,
            rounding=self.rounding,
            seed=self.seed,
        )

    def fit(
        self,
        population: Population,
        model: Any,
        desired: Any,
        *,
        threshold: float | None = None,
        later: Sequence[Any] = (),
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
            models; eight are a good number, two the least. An answer of the catalogue then needs an
            outcome that these give too: the mean of their probabilities less 1.64 standard
            deviations is above the least one at which the outcome is given. The policy's margin is
            used beside it only if it is a number. Each needs probabilities, as for
            `PrivacyPolicy.margin`, and is asked about everything that the model is asked about.

        Returns
        -------
        KAnonymizer
            Itself.

        Raises
        ------
        PolicyError
            If k is above the number of people, l or t is asked without sensitive attributes, the
            method cannot give the guarantee, or an effective k cannot be measured with it.
        ModelError
            If the model cannot be used.
        InputError
            If `population` is not one, the method is unknown, or a protector has the name of a
            built-in one.
        """
        check_population(population)
        self.policy_ = policy_or(self.policy, population.policy)
        check(self.policy_, self.method, population)
        self._check_settings()
        models_later = [thresholded(later_model, threshold) for later_model in checked_later(later)]
        with doing("asking the model about the training rows"):
            return self._learn(population, thresholded(model, threshold), desired, models_later)

    def _check_settings(self) -> None:
        """Refuse a seed or a way of searching that is none."""
        whole_number("seed", self.seed, 0)
        _check_search(self.change_cost, self.rounding)

    def _learn(
        self, population: Population, model: Any, desired: Any, later: Sequence[Any]
    ) -> KAnonymizer:
        """Learn all attributes that end in an underscore, in the order in which they depend.

        The labels of training rows decide who is eligible; the guarantee makes groups, and maybe a
        catalogue, of these people; the pipeline connects both with the verifier.
        """
        self.manager_ = load_plugins(self.plugins)
        self.population_ = population
        self.goal_ = DesiredOutcome.of(desired)
        self.rules_ = rules_of(population.encoder)
        self.model_ = self._labelled(model)
        rows = TrainingLabels(self.model_, population)
        self._check_outcomes(rows)
        self.later_ = [self._labelled(later_model) for later_model in later]
        rows.requirement = requirement_of(self.policy_, self.goal_, rows, self.later_)
        self.guarantee_ = make_guarantee(self.policy_, self.goal_, rows)
        protector, self.method_ = self.guarantee_.choose_protector(
            self.method, self.manager_.protectors
        )
        self.explainer_sample_: dict[str, int] | None = None  # see `protect`
        self.detector_ = Detector(population, self.policy_.near_native, seed=self.seed)
        self.pipeline_ = Pipeline(
            population=population,
            policy=self.policy_,
            model=self.model_,
            goal=self.goal_,
            rows=rows,
            guarantee=self.guarantee_,
            protector=protector,
            method=self.method_,
            plugins=self.manager_,
            detector=self.detector_,
            verifier=self.guarantee_.verifier(seed=self.seed),
            search=self._search_options(),
            seed=self.seed,
        )
        self._personal_columns = self._columns_to_warn_of()
        self._note_provenance(model)
        return self

    def _columns_to_warn_of(self) -> tuple[str, ...]:
        """Return columns whose change is worth a warning; a fit for an audit gives none."""
        if is_refitting():
            return ()
        return tuple(personal_columns(self.population_.schema.features))

    def _labelled(self, model: Any) -> LabelModel:
        return LabelModel(model, self.population_.schema.features, self.goal_)

    def _check_outcomes(self, rows: TrainingLabels) -> None:
        """Refuse a goal, or words for outcomes, that the model's labels do not fit."""
        self.goal_.check(self.model_.classes, rows.tried())
        self.population_.schema.wording.check_outcomes(self.model_.classes)

    def _search_options(self) -> SearchOptions:
        """Return how a catalogue's answers are chosen."""
        return SearchOptions(change_cost=float(self.change_cost), rounding=self.rounding)

    def _note_provenance(self, model: Any) -> None:
        """Note what every result states of its origin: facts of the data, versions, settings."""
        population = self.population_
        versions = self.manager_.versions()
        self._facts = facts_of(population, self.policy_.k) | {"fingerprint": population.fingerprint}
        self._environment = environment_of(
            plugins=versions,
            seed=self.seed,
            model=model,
        )
        self._provenance = {
            "method": self.method_,
            "population": population.fingerprint,
            "plugins": ", ".join(f"{name} {version}" for name, version in versions.items()),
        }

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

        With a catalogue, the search for each answer starts at its counterfactual. Somebody who
        chooses what is explained can then find out whose row is behind an answer, and certificates
        list "query steering" as not stopped. Answer such people with `explain`.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
            Raw feature space, any column order; label, identifier and unknown columns are dropped.
        factuals : DataFrame, shape (n, n_features or more), optional
            The instance that each counterfactual explains. Needed for a catalogue, whose answers
            are true for the person who asks and moved towards them only with it, and where the
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
            If the table lacks features, has duplicate columns or no rows, or there are no factuals
            and the schema, or `max_changes`, says what cannot change.
        """
        self._check_rows("transform()")
        start_time = time.perf_counter()
        frame, query = as_table(counterfactuals, self.population_.schema.features)
        features = self.population_.schema.features
        request = Request(started=start_time)
        if factuals is not None:
            factuals = require_features(factuals, features, "factuals")
            if len(factuals) != len(frame):
                raise InputError(
                    f"{len(factuals)} factuals for {len(frame)} counterfactuals; give one each"
                )
            queries = factuals.set_axis(query, axis=0)
            request = replace(request, is_for_people=True, queries=queries)
        rules = self.rules_for(factuals)
        limit = most_changes(max_changes)
        if limit is not None and factuals is None:
            raise InputError("max_changes counts what a person changes; give the factuals as well")
        request = replace(request, decided=decided_features(features, rules), rules=rules)
        with _showing_progress("protecting counterfactuals", progress) as shown_progress:
            explanations, findings = self.pipeline_.release(
                frame,
                query,
                factuals=factuals,
                rules=rules,
                max_changes=limit,
                instance_based=instance_based,
                progress=shown_progress,
            )
        return self.wrap(explanations, findings, generator="table", call=request)

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
    ) -> Explanations:
        """Answer queries from the catalogue with the nearest answers that are true for the person
        who asks.

        True: at the point of the answer's region nearest to the query, with the answer's private
        values, the model gives the desired outcome. Needs ``guarantee="catalogue"``. An answer
        depends on the query, the catalogue's entries and the model alone: whoever keeps asking
        learns the catalogue and, as answers are moved towards the query, where the model's outcome
        changes.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more)
        answers : int
            How many different answers to give to each query, from near to far and chosen to be
            diverse. No two to one query have the same private values, so that nobody can intersect
            their regions; answers that cannot be found are withheld as ``no_other_answer``.
        desired : label, optional
            The outcome that this call asks for: where the anonymizer was fitted for "opposite", one
            of the model's labels. Default: what it was fitted for.
        features_to_vary : "all" or sequence of str
            Features that an answer may ask to change; it leaves the others as they are. What the
            schema declares immutable, monotone or never advised holds in addition.
        permitted_range : mapping of feature to range, optional
            What an answer may have: ``[low, high]`` for a number, a list of values for all else.
        max_changes : int, optional
            How many features an answer may ask to change: those that its sentence lists, which are
            private values that are not the query's, and quasi-identifiers whose region does not
            hold the query's value. The search prefers answers within the limit. If there is none,
            the answer is withheld as ``no_actionable_answer``.
        progress : callable, optional
            Called with (done, total).
        track : bool, str or RunLogger
            Whether to log the result to MLflow, or the name of the experiment to log to.
        groups : str, optional
            Column that divides those who ask into groups in the logged runs; see
            `Explanations.by_group`.

        Returns
        -------
        Explanations
            `answers` entries per query, in order.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        InputError
            As `transform`; also if a constraint does not name a feature, is empty, or is outside of
            what is declared, or `max_changes` is no whole number from 1 on.
        """
        self._require_catalogue("explain()")
        frame = require_features(queries, self.population_.schema.features, "queries")
        rules = rules_of(self.population_.encoder, features_to_vary, permitted_range)
        limit = most_changes(max_changes)
        pipeline = replace(self.pipeline_, goal=self.goal_of_call(desired) or self.goal_)
        decided = decided_features(self.population_.schema.features, rules, features_to_vary)
        request = replace(Request.of(queries, groups), decided=decided, rules=rules)
        query = np.repeat(np.arange(len(frame)), whole_number("answers", answers))
        with _showing_progress("answering queries", progress) as shown_progress:
            explanations = pipeline.answer(
                frame.take(query), query, rules, shown_progress, max_changes=limit
            )
        record = partial(observe, track=track)
        return self.wrap(explanations, None, "catalogue", request, record, start="query")

    def published(self) -> Explanations:
        """Return the whole catalogue, entry by entry, in the form in which it can be published.

        All answers are made of it and the model. The private values of an entry belong to at least
        k people or to no one. It does not hide who may be in the table. The order of entries
        follows from what they say.

        Each fit is a release of its own: if an earlier catalogue of the same people was published,
        an attacker who compares the two learns something about the people who joined or left.

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
        call = Request()
        entries = self.pipeline_.catalogue_entries(catalogue, np.arange(len(catalogue)))
        return self.wrap(
            publish(entries),
            None,
            generator="catalogue",
            call=call,
            start="query",
            kind="catalogue",
        )

    def _require_catalogue(self, caller: str) -> Catalogue:
        """Return the catalogue for a method of this class; refuse where there is none."""
        self._check_fitted()
        return self.guarantee_.require_catalogue(caller)

    def seal(self, path: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
        """Write policy and catalogue to one file, with which another process answers the same.

        ``KAnonymizer().fit(Population.open(path), model, desired)`` and then `explain` do so. The
        file has the catalogue's regions and entries, and no row; of private values it has those of
        entries. Counterfactuals cannot be protected there, ``k_consistent`` and ``k_effective`` are
        given as the policy's k, which they reach, ``k_desired``, ``k_private`` and findings are
        None, and the policy is fixed. Fitting refuses a model whose outcomes for the entries differ
        from the sealed ones.

        Parameters
        ----------
        path : str or Path
        settings : mapping, optional
            Plain values for whoever opens the file, found in ``Population.settings``. The seal
            covers them.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        BundleError
            If the file cannot be written.
        """
        self._check_fitted()
        facts: dict[str, Any] = {"policy": self.policy_.to_dict()}
        if settings is not None:
            facts["settings"] = dict(settings)
        content = self.guarantee_.sealed_content()
        facts |= content.facts
        self.population_.seal(path, facts=facts, arrays=content.arrays, entries=content.entries)

    def regions_of(self, records: pd.DataFrame) -> list[Region | None]:
        """Return the region that protection maps each record to, unverified.

        For audits; never release it.

        An adversary who knows everything but the key can compute the same.

        Parameters
        ----------
        records : DataFrame, shape (n, n_features or more)

        Returns
        -------
        list of Region or None
        """
        self._check_rows("regions_of()")
        frame = require_features(records, self.population_.schema.features, "records")
        return self.pipeline_.regions_of(frame)

    def goal_of_call(self, desired: Any) -> DesiredOutcome | None:
        """Return the goal of a call that names an outcome itself; None if it names none.

        Refused is an outcome other than the one protected for and, where only eligible people
        count, another range: which ranges are answered would reveal people's outcomes.
        """
        if desired is None:
            return None
        goal = self.goal_.of_call(desired, self.model_.classes)
        if self.policy_.counts_eligible and not self.goal_.keeps_classes_whole(goal):
            raise InputError(
                "the call asks for a part of the outcomes, and the k people are those with the"
                " outcome that was protected for; protect the explainer with desired=(low, high) or"
                " a set, and ask for the same"
            )
        return goal

    def rules_for(self, factuals: pd.DataFrame | None) -> Rules:
        """Return what the schema says may change; refused if it restricts something and the
        factuals are unknown.
        """
        if self.rules_ and factuals is None:
            raise InputError(
                f"the schema says how {', '.join(self.rules_)} may change; give the factuals as"
                " well"
            )
        return self.rules_

    def factual_labels(self, factuals: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels of the instances to explain."""
        return self.model_(self.population_.conform(factuals)).astype(object)

    def wrap(
        self,
        entries: Sequence[Explanation],
        findings: Sequence[NativeStatus | None] | None,
        generator: str,
        call: Request,
        record: Callable[[Explanations], bool] | None = None,
        *,
        start: SearchStart = "explainer",
        kind: Kind = "answers",
    ) -> Explanations:
        """Return entries as a result, in order, and notify plugins; what `record` cannot keep is
        withheld.
        """
        facts = {**self._facts, "tolerance": self.detector_.used}
        environment = {**self._environment, "generator": generator}
        context = ResultContext(
            facts,
            environment,
            sample=self.explainer_sample_,
            kind=kind,
            wording=self.population_.schema.wording,
        )
        result = Explanations(
            entries,
            policy=self.policy_,
            columns=self.population_.schema.features,
            findings=findings,
            n_people=self.population_.n_people,
            provenance={
                **self._provenance,
                "generator": generator,
                **self.guarantee_.provenance(start),
            },
            about=context.of_call(call, entries),
        )
        if record is not None and not record(result):
            result = result.without_record()
        self._warn_of_personal_columns(entries, call)
        if "cfk_released" in self.manager_.hooks:
            for explanation in result:
                self.manager_.released(
                    release_record(
                        explanation,
                        self.method_,
                        self.policy_.sha256,
                        self.population_.fingerprint,
                    )
                )
        return result

    def _warn_of_personal_columns(self, entries: Sequence[Explanation], call: Request) -> None:
        """Warn, once per fit, if answers change who a person is and nobody said whether they can.

        The warning names columns, and no value.
        """
        names = [name for name in self._personal_columns if name not in call.decided]
        if not names or call.queries is None or not call.queries.columns.is_unique:
            return
        queries = self.population_.conform(call.queries)
        rows = dict(
            zip(call.queries.index.tolist(), queries[names].to_dict("records"), strict=True)
        )
        changed: set[str] = set()
        for entry in entries:
            if isinstance(entry, GeneralizedCounterfactual) and entry.query in rows:
                changed |= entry.changes(rows[entry.query])
            if len(changed) == len(names):
                break
        if changed:
            self._personal_columns = ()
            columns = [name for name in names if name in changed]
            warn(_what_nobody_can_change(columns), PersonalColumnWarning)

    def _check_rows(self, caller: str) -> None:
        """Refuse a method that looks up the group of a record if there are no rows."""
        self._check_fitted()
        self.population_.require_rows(
            PolicyError(
                f"{caller} needs to know who is where; a sealed catalogue answers queries: use"
                " explain()"
            )
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "pipeline_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")

    def _repr_html_(self) -> str:
        policy = getattr(self, "policy_", self.policy or PrivacyPolicy())
        rows = {
            "policy": f"k = {policy.k}, {policy.guarantee}",
            "not stopped": ", ".join(policy.not_stopped),
        }
        if not hasattr(self, "pipeline_"):
            return card("KAnonymizer, not fitted", f"{policy.promise}.", facts(rows))
        rows |= {"method": self.method_, "people": f"{self.population_.n_people:,}"}
        rows |= self.guarantee_.facts_for_card()
        return card("KAnonymizer", f"{policy.promise}.", facts(rows))

    def _counts(self) -> str:
        return f"policy={self.policy!r}, method={getattr(self.method, 'name', self.method)!r}"


_MOST_COST = 10  # no attribute differs by more than 1 within its range


def _check_search(change_cost: object, rounding: object) -> None:
    """Refuse a cost of changes, or a switch for rounding, that is none."""
    if (
        isinstance(change_cost, bool)
        or not isinstance(change_cost, (int, float))
        or not 0 <= change_cost <= _MOST_COST
    ):
        raise InputError(
            f"change_cost must be a number from 0 to {_MOST_COST}, got {change_cost!r}; the"
            " default is 0.1"
        )
    if not isinstance(rounding, bool):
        raise InputError(f"rounding must be True or False, got {rounding!r}")


@contextmanager
def _showing_progress(step: str, progress: Progress | None) -> Iterator[Progress]:
    """Yield a callback that shows progress: by the user's own callable, or else as a line."""
    if progress is None:
        with doing(step):
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
