"""KAnonymizer: the stages from raw counterfactuals to verified explanations, failing closed at each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Counterfactual, Entry, Finding, GeneralizedCounterfactual, Suppressed
from cfk_plugin.detection import Detector
from cfk_plugin.errors import InfeasibleError, InputError, ModelError, NotFittedError, PolicyError
from cfk_plugin.explanations import Explanations
from cfk_plugin.hookspecs import ReleaseRecord
from cfk_plugin.intake import Intake, as_table, require_features, take_in
from cfk_plugin.oracle import Goal, LabelModel, Oracle, RowOracle
from cfk_plugin.plugins import load_plugins, worst
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.base import Progress, Protector
from cfk_plugin.region import natural
from cfk_plugin.release import ReleaseStage
from cfk_plugin.verification import Refusal, Verifier

_log = logging.getLogger("cfk_plugin")
_FINDINGS: dict[str | None, Finding | None] = {None: None, **{name: name for name in get_args(Finding)}}
_TRIED = 256  # training rows that the model is tried on before anything is promised


class KAnonymizer:
    """Turns counterfactual instances into k-anonymous explanations with recounted certificates.

    Protects against linking an explanation to a person by quasi-identifiers: every region that leaves holds at
    least k people of the population. Private values are released as they are. It does not protect against an
    adversary who reruns the algorithm, asks the model about every candidate (see ``Certificate.k_consistent``), or
    intersects explanations of several policies or models.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``.
    method : str or Protector
        "exact", "grasp", "mondrian", the name of a plugin's protector, or a protector with its own settings.
    plugins : sequence
        Plugin objects or modules for this run, beside those found by entry points.
    reference : Population, optional
        Larger population for the journalist risk.
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
        method: str | Protector = "exact",
        plugins: Sequence[object] = (),
        reference: Population | None = None,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.method = method
        self.plugins = plugins
        self.reference = reference
        self.seed = seed

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
            If k is above the number of people, or l or t is asked without sensitive attributes.
        ModelError
            If the model cannot be used.
        InputError
            If something else than a `Population` is given, the method is unknown, or it has a built-in one's name.
        """
        if not isinstance(population, Population):
            raise InputError(f"population must be a Population, got {type(population).__name__}; use from_frame")
        self.policy_ = self.policy or PrivacyPolicy()
        if self.policy_.k > population.n_people:
            raise PolicyError(f"k = {self.policy_.k} is above the number of people, {population.n_people}")
        if (self.policy_.l or self.policy_.t is not None) and not population.schema.sensitive:
            raise PolicyError("l and t need sensitive attributes in the schema; name them with `sensitive=`")
        self.manager_ = load_plugins(self.plugins)
        self.protector_, self.method_ = self._protector()
        self.population_ = population
        self.goal_ = Goal(desired)
        self.model_ = LabelModel(model, population.schema.features, fractions=callable(desired))
        self.goal_.check(self.model_, self.model_(population.rows(np.arange(min(_TRIED, population.n_rows)))))
        self.rows_ = RowOracle(self.model_, population)
        self.detector_ = Detector(population, self.policy_.near_native, seed=self.seed)
        verifier = Verifier(population, self.policy_, reference=self.reference, seed=self.seed)
        self.stage_ = ReleaseStage(
            population, self.policy_, self.protector_, self.method_, self.manager_, verifier, self.seed
        )
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
        frame, query = as_table(counterfactuals, self.population_)
        labels = None
        if factuals is not None:
            facts = require_features(factuals, self.population_, "factuals")
            if len(facts) != len(frame):
                raise InputError(f"{len(facts)} factuals for {len(frame)} counterfactuals; give one each")
            labels = self.factual_labels(facts) if self.goal_.is_opposite else None
        entries, findings = self.release(frame, query, labels, instance_based=instance_based, progress=progress)
        return self.explanations(entries, findings)

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
    ) -> tuple[list[Entry], tuple[Finding | None, ...]]:
        """Run all stages on counterfactuals that have every feature; `query` says which query each answers."""
        try:
            intake = take_in(frame, self.population_)
            findings = self._detect(frame, instance_based)
            entries = self._entries(intake, query, factual_labels, progress)
        except Exception as error:  # noqa: BLE001 - whatever failed, nothing unprotected may leave
            _log.warning("explanations withheld: %s in the pipeline", type(error).__name__)
            reason = "model_failed" if isinstance(error, ModelError) else "protector_failed"
            entries = [Suppressed(int(q), reason) for q in query]
            findings = (None,) * len(query)
        return entries, findings

    def explanations(
        self, entries: Sequence[Entry], findings: Sequence[Finding | None], generator: str = "table"
    ) -> Explanations:
        """Wrap entries as a result of this anonymizer and tell the plugins."""
        result = Explanations(
            entries,
            policy=self.policy_,
            columns=self.population_.schema.features,
            findings=findings,
            n_people=self.population_.n_people,
            provenance={
                "method": self.method_,
                "generator": generator,
                "population": self.population_.fingerprint,
                "plugins": ", ".join(f"{name} {version}" for name, version in self.manager_.versions().items()),
            },
        )
        if self.policy_.on_infeasible == "raise" and result.suppressed:
            reasons = ", ".join(sorted({entry.reason for entry in result.suppressed}))
            raise InfeasibleError(f"{len(result.suppressed)} of {len(result)} explanations are withheld: {reasons}")
        for entry in result:
            record = ReleaseRecord.of(entry, self.method_, self.policy_.sha256, self.population_.fingerprint)
            self.manager_.released(record)
        return result

    def _entries(
        self,
        intake: Intake,
        query: NDArray[np.int64],
        factual_labels: NDArray[Any] | None,
        progress: Progress | None,
    ) -> list[Entry]:
        entries: list[Entry] = [
            Suppressed(int(q), *fault) if fault else Suppressed(int(q), "not_desired")
            for q, fault in zip(query, intake.faults, strict=True)
        ]
        usable = np.array([i for i, fault in enumerate(intake.faults) if fault is None], dtype=np.int64)
        if not len(usable):
            return entries
        own = self.model_(intake.take(usable).frame).astype(object)
        factual = None if factual_labels is None else factual_labels[usable]
        desired = self.goal_.judge(factual, own)(own, np.arange(len(usable)))
        usable, own = usable[desired], own[desired]
        if not len(usable):
            return entries
        factual = None if factual is None else factual[desired]
        accepted = intake.take(usable)
        judge, cells = self.goal_.judge(factual, own), accepted.quasi_identifiers[0]
        oracle = Oracle(self.model_, judge, self.rows_, accepted.frame, desired_at=cells)
        goals = (own if factual is None else factual).tolist()
        verdicts = self.stage_.run(accepted, goals, oracle, progress)
        for row, (at, verdict) in enumerate(zip(usable.tolist(), verdicts, strict=True)):
            if isinstance(verdict, Refusal):
                entries[at] = Suppressed(int(query[at]), verdict.reason)
            else:
                released = {name: natural(accepted.frame[name].iloc[row]) for name in self.population_.schema.private}
                region, certificate = verdict
                named = {name: self.population_.domains[name].label(part) for name, part in region.items()}
                labels = {name: label for name, label in named.items() if label is not None}
                entries[at] = GeneralizedCounterfactual(int(query[at]), region, released, certificate, labels)
        return entries

    def _detect(self, frame: pd.DataFrame, instance_based: bool) -> tuple[Finding | None, ...]:
        """Say what each raw counterfactual is; plugins may find worse, never better, than the host."""
        own = self.detector_.find(frame, instance_based=instance_based)
        others = self.manager_.detect(frame, self.population_)
        return tuple(_FINDINGS[worst(a, b)] for a, b in zip(own, others, strict=True))

    def _protector(self) -> tuple[Protector, str]:
        """Return the protector and its name, which is read before it sees data: certificates show it."""
        if isinstance(self.method, str):
            known: dict[str, Callable[[], Protector]] = {**self.manager_.protectors(), **BUILT_IN}
            if self.method not in known:
                raise InputError(f"unknown method {self.method!r}; known: {', '.join(sorted(known))}")
            return known[self.method](), self.method
        name = getattr(self.method, "name", None)
        if type(name) is not str or not callable(getattr(self.method, "protect", None)):
            raise InputError(f"method must be a name or a protector; got {type(self.method).__name__}")
        if name in BUILT_IN and not isinstance(self.method, BUILT_IN[name]):
            raise InputError(f"a protector calls itself {name!r}, which is a built-in one; give it another name")
        return self.method, name

    def _check_fitted(self) -> None:
        if not hasattr(self, "stage_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every training row."""
        raise InputError("a KAnonymizer holds training rows and refuses to be pickled; fit it where it runs")

    def __repr__(self) -> str:
        """Show settings alone."""
        return f"KAnonymizer(policy={self.policy!r}, method={getattr(self.method, 'name', self.method)!r})"
