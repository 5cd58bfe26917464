"""KAnonymizer: the stages from raw counterfactuals to verified explanations, failing closed at each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.about import Call
from cfk_plugin.counterfactual import Counterfactual, Entry, Finding
from cfk_plugin.detection import Detector
from cfk_plugin.entries import EntryStage, failing_closed, withheld
from cfk_plugin.errors import CFKError, InputError, NotFittedError, PolicyError
from cfk_plugin.explanations import Explanations
from cfk_plugin.findings import FindingStage
from cfk_plugin.goal import Goal
from cfk_plugin.guarantees import Ground
from cfk_plugin.intake import as_table, require_features, take_in
from cfk_plugin.label_model import LabelModel
from cfk_plugin.ledger import Ledger
from cfk_plugin.methods import AUTO, check, check_rerun, check_sealable, choose
from cfk_plugin.oracle import RowOracle
from cfk_plugin.plugins import load_plugins
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection.base import Progress, Protector
from cfk_plugin.protection.sealing import partition_to_arrays
from cfk_plugin.recorded import RecordedRelease
from cfk_plugin.region import Region
from cfk_plugin.release import ReleaseStage
from cfk_plugin.result import ResultStage
from cfk_plugin.verification import Verifier


class KAnonymizer:
    """Turns counterfactual instances into k-anonymous explanations with recounted certificates.

    Protects against linking an explanation to a person by quasi-identifiers: every region that leaves holds at
    least k people of the population, and by default k people are mapped to it, whoever reruns the protection. What
    else is held against is the policy's guarantee (`PrivacyPolicy`); several releases of one record over time need a
    `Ledger`. Private values are released as the policy says, by default as they are.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``.
    method : str or Protector
        "auto": what the guarantee prescribes, "exact" for a nominal one. For a nominal guarantee also "grasp",
        "mondrian", the name of a plugin's protector, or a protector with its own settings.
    plugins : sequence
        Plugin objects or modules for this run, beside those found by entry points.
    reference : Population, optional
        Larger population for the journalist risk.
    ledger : Ledger, optional
        Remembers what was released for each record, so that several releases do not add up; see `Ledger`.
    measure_k_effective : bool
        For a nominal guarantee: rerun the protection for everybody in a region and certify ``k_effective``, at about k
        times the cost. Other guarantees always do. Not for protectors that draw random numbers, nor with l or t.
    seed : int
        For protectors and samples that draw random numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    >>> _ = anonymizer.fit(Population.from_frame(train, schema), model=lambda x: x.salary > 50, desired=True)
    >>> str(anonymizer.transform(train.head(1))[0].region["age"])
    '24–25'
    """

    def __init__(
        self,
        *,
        policy: PrivacyPolicy | None = None,
        method: str | Protector = AUTO,
        plugins: Sequence[object] = (),
        reference: Population | None = None,
        ledger: Ledger | None = None,
        measure_k_effective: bool = False,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.method = method
        self.plugins = plugins
        self.reference, self.ledger = reference, ledger
        self.measure_k_effective, self.seed = measure_k_effective, seed

    def fit(self, population: Population, model: Any, desired: Any) -> KAnonymizer:
        """Bind population, model and desired outcome; everything that can be refused is refused here.

        Parameters
        ----------
        population : Population
            The crowd to hide in: the rows that the explainer may return.
        model : object with ``predict``, or callable
            Returns one label per row.
        desired : label, "opposite" or callable
            What a counterfactual must reach. A callable takes labels and returns booleans.

        Returns
        -------
        KAnonymizer
            Itself.

        Raises
        ------
        PolicyError
            If k is above the number of people, l or t is asked without sensitive attributes, the method cannot give
            the guarantee, or an effective k cannot be measured with it.
        ModelError
            If the model cannot be used.
        InputError
            If something else than a `Population` is given, the method is unknown, or it has a built-in one's name.
        """
        if not isinstance(population, Population):
            raise InputError(f"population must be a Population, got {type(population).__name__}; use from_frame")
        policy = self.policy_ = self.policy or population.policy or PrivacyPolicy()
        check(policy, self.method, population)
        self.manager_ = load_plugins(self.plugins)
        self.population_, self.goal_ = population, Goal(desired)
        self.model_ = LabelModel(model, population.schema.features, fractions=callable(desired))
        self.rows_ = RowOracle(self.model_, population)
        self.goal_.check(self.model_, self.rows_.tried())
        self.ground_ = Ground.prepare(policy, self.goal_, self.rows_)
        self.protector_, self.method_ = self.ground_.protector or choose(self.method, self.manager_.protectors())
        detector = Detector(population, policy.near_native, seed=self.seed)
        self.findings_ = FindingStage(population, detector, self.manager_)
        partition = self.ground_.partition
        verifier = Verifier(population, policy, reference=self.reference, seed=self.seed, partition=partition)
        release = ReleaseStage(population, policy, self.protector_, self.method_, self.manager_, verifier, self.seed)
        stage = release if self.ledger is None else RecordedRelease(release, self.ledger)
        if measures := self.measure_k_effective and partition is None:
            check_rerun(self.protector_, policy)
        self.stage_ = EntryStage(population, self.model_, self.goal_, self.rows_, self.ground_, stage, measures)
        used = {"seed": self.seed, "ledger": self.ledger, "reference": self.reference}
        self.result_ = ResultStage.of(population, policy, self.method_, self.manager_, detector, **used)
        return self

    def transform(
        self,
        counterfactuals: pd.DataFrame | Sequence[Counterfactual],
        factuals: pd.DataFrame | None = None,
        *,
        instance_based: bool = False,
        progress: Progress | None = None,
    ) -> Explanations:
        """Protect a table of counterfactual instances.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
            Raw feature space, any column order; label, identifier and unknown columns are dropped.
        factuals : DataFrame, shape (n, n_features or more), optional
            The instance that each counterfactual explains; needed only for ``desired="opposite"``, where without
            it the model's outcome at the counterfactual counts as the desired one.
        instance_based : bool
            Whether the generator returns training rows or lightly changed ones.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Explanations
            One entry per row, in order.

        Raises
        ------
        InputError
            If the table lacks features, has doubled columns or no rows.
        InfeasibleError
            If the policy says ``on_infeasible="raise"`` and an entry had to be suppressed.
        """
        self._check_fitted()
        call, (frame, query) = Call(), as_table(counterfactuals, self.population_)
        labels = None
        if factuals is not None:
            if len(facts := require_features(factuals, self.population_.schema.features, "factuals")) != len(frame):
                raise InputError(f"{len(facts)} factuals for {len(frame)} counterfactuals; give one each")
            labels = self.factual_labels(facts) if self.goal_.is_opposite else None
        entries, findings = self.release(frame, query, labels, instance_based=instance_based, progress=progress)
        return self.result_.wrap(entries, findings, generator="table", call=call)

    def explain(self, queries: pd.DataFrame, *, progress: Progress | None = None) -> Explanations:
        """Answer queries from the catalogue, without an explainer.

        Needs ``guarantee="catalogue"``. The answer is the nearest entry and depends on the catalogue, the model and
        the query alone: who asks again and again sees the catalogue, and no more.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more)
            Instances to explain.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Explanations
            One entry per query, in order.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        InputError, InfeasibleError
            As `transform`.
        """
        self._check_fitted()
        if self.ground_.catalogue is None:
            raise PolicyError('explain() answers from the catalogue; it needs guarantee="catalogue"')
        call, frame = Call(), require_features(queries, self.population_.schema.features, "queries")
        query = np.arange(len(frame))
        try:
            with failing_closed():
                entries = self.stage_.of_queries(take_in(frame, self.population_), query, progress)
        except CFKError as error:
            entries = withheld(query, error)
        return self.result_.wrap(entries, (None,) * len(query), generator="catalogue", call=call)

    def seal(self, path: str | Path) -> None:
        """Write population, policy and partition to one file, from which another process protects alike.

        ``KAnonymizer().fit(Population.open(path), model, desired)`` releases the same regions. The file has no row
        and no value of a private attribute (`Population.seal`). There, nothing is counted that needs rows:
        ``k_desired``, ``k_private`` and findings are None, and k may be raised and not lowered.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        PolicyError
            If the policy judges private values, or has a catalogue: both need rows.
        BundleError
            If the file cannot be written.
        """
        self._check_fitted()
        check_sealable(self.policy_, self.goal_)
        partition = self.ground_.partition
        arrays = {} if partition is None else partition_to_arrays(partition)
        self.population_.seal(path, facts={"policy": self.policy_.to_dict()}, arrays=arrays)

    def regions_of(self, records: pd.DataFrame) -> list[Region | None]:
        """Return the region that protection maps each record to, whatever its outcome. For audits; never release it.

        Nothing is verified or asked of the model. An adversary who knows all but the key computes the same.

        Parameters
        ----------
        records : DataFrame, shape (n, n_features or more)

        Returns
        -------
        list of Region or None
            One per record; None where there is none.
        """
        self._check_fitted()
        frame = require_features(records, self.population_.schema.features, "records")
        return self.stage_.regions(take_in(frame, self.population_))

    def goal_of_call(self, desired: Any) -> Goal | None:
        """Return what a call that asks for an outcome of its own is judged by; None where it asks for none.

        Parameters
        ----------
        desired : label, or callable from labels to booleans; None for none

        Raises
        ------
        InputError
            If the call's outcome is another one than is protected for; see `Goal.of_call`. Where eligible people alone
            count, another range is refused as well: which ranges are answered would tell their outcomes.
        """
        if desired is None:
            return None
        goal = self.goal_.of_call(desired, self.model_)
        if goal != self.goal_ and callable(goal.desired) and self.policy_.counts_eligible:
            raise InputError(
                "the call asks for a range of outcomes, and the k people are those with the outcome that was protected "
                "for; protect the explainer with desired=DesiredRange(low, high), and ask for the same range"
            )
        return goal

    def factual_labels(self, factuals: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels of the instances to explain."""
        return self.model_(self.population_.conform(factuals)).astype(object)

    def release(
        self,
        frame: pd.DataFrame,
        query: NDArray[np.int64],
        factual_labels: NDArray[Any] | None = None,
        *,
        instance_based: bool = False,
        progress: Progress | None = None,
        stage: EntryStage | None = None,
        goal: Goal | None = None,
    ) -> tuple[list[Entry], tuple[Finding | None, ...]]:
        """Run all stages on counterfactuals that have every feature; `query` says which query each answers.

        With a `goal` of the call (`goal_of_call`) they are judged by it.
        """
        try:
            with failing_closed():
                intake = take_in(frame, self.population_)
                findings = self.findings_.of(frame, instance_based=instance_based)
                made = (stage or self.stage_).of_counterfactuals(intake, query, factual_labels, progress, goal)
                return made, findings
        except CFKError as error:
            return withheld(query, error), (None,) * len(query)

    def _check_fitted(self) -> None:
        if not hasattr(self, "stage_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every training row."""
        raise InputError("a KAnonymizer holds training rows and refuses to be pickled; fit it where it runs")

    def __repr__(self) -> str:
        """Show settings alone."""
        return f"KAnonymizer(policy={self.policy!r}, method={getattr(self.method, 'name', self.method)!r})"
