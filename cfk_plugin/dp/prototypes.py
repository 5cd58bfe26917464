"""DPPrototypes: each query is answered with the nearest row of another outcome from a
differentially private model.
"""

from __future__ import annotations

import copy
import logging
import math
import secrets
import time
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from cfk_plugin.data.estimator import BaseEstimator
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome, Outcome
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.data.tables import require_features, select
from cfk_plugin.data.values import as_pandas
from cfk_plugin.dp.answer_rows import (
    ServedRows,
    balanced_weight,
    check_unfitted,
    fit_surrogate,
    medoids,
    obey_rules,
    rows_to_advise,
)
from cfk_plugin.dp.budget import BudgetAccountant
from cfk_plugin.dp.composition import largest_rho
from cfk_plugin.dp.domain import PublicDomain
from cfk_plugin.dp.forest import Forest, shares
from cfk_plugin.dp.mover import Cells, Mover
from cfk_plugin.dp.noise import PrivateRows, SeededRows
from cfk_plugin.errors import (
    BudgetError,
    ModelError,
    PolicyError,
    PrivacyLeakWarning,
    shown,
)
from cfk_plugin.metrics.provenance import declarations_of, environment_of
from cfk_plugin.release.explanations import Explanations, ResultContext
from cfk_plugin.release.request import Groups
from cfk_plugin.release.results import (
    Explanation,
    ModelAccess,
    PrototypeCertificate,
    PrototypeCounterfactual,
    PrototypePolicy,
    Withheld,
)
from cfk_plugin.tracking.logger import Track, observe

_log = logging.getLogger("cfk_plugin")
_MOVES_TOWARDS_QUERY = (
    "move_towards_query=True moves rows as far as the model's outcomes allow, and the model is"
    " private: answers tell more of it then, which no epsilon covers"
)


def explanations_of(
    rows: pd.DataFrame | None,
    refused: Sequence[str | None],
    certificate: PrototypeCertificate,
    policy: PrototypePolicy,
    schema: Schema,
    groups: Groups | None,
    started: float,
    track: Track,
    *,
    index: pd.Index,
    outcome: Outcome,
    seed: int | None,
    spent: float = 0.0,
) -> Explanations:
    """Return one entry per query, its row or why there is none; no rows if recording them fails."""
    columns = [rows[name].tolist() for name in schema.features] if rows is not None else []
    presentation = Presentation.of(schema)
    answers = zip(*columns, strict=True) if columns else [()] * len(refused)
    entries: list[Explanation] = [
        (
            PrototypeCounterfactual(
                query,
                dict(zip(schema.features, row, strict=True)),
                certificate,
                presentation,
                outcome,
            )
            if reason is None
            else Withheld(query, reason)
        )
        for query, (reason, row) in enumerate(zip(refused, answers, strict=True))
    ]
    environment = {**environment_of(seed=seed), "generator": policy.method}
    about = ResultContext(
        declarations_of(schema),
        environment,
        is_for_people=True,
        wording=schema.wording,
        index=index,
    ).of_call(entries, started, groups)
    provenance: dict[str, str] = {"method": policy.method, "generator": policy.method}
    provenance |= {"epsilon_spent": str(spent)} if spent else {}
    result = Explanations(
        entries, policy=policy, columns=schema.features, provenance=provenance, about=about
    )
    return result if observe(result, track) else result.without_record()


def policy_of(asked: DPPrototypes) -> PrototypePolicy:
    """Return the settings that a guarantee depends on; refuses those out of range."""
    names = [setting.name for setting in fields(PrototypePolicy) if setting.name != "method"]
    return PrototypePolicy(method="dp", **{name: getattr(asked, name) for name in names})


@dataclass(repr=False, eq=False)
class DPPrototypes(BaseEstimator):
    """Answers queries with rows of a differentially private model of the training table.

    Protects everybody in the table against whoever sees all answers together: every answer is
    computed from counts to which noise was added once, in `fit`. Not covered is the model that is
    explained, which may remember people (see `model_access`). See the page "Answer with
    prototypes".

    Parameters
    ----------
    epsilon : float
        Budget of a fit, however many queries are answered; smaller is more private, 1 is usual.
    delta : float
        0: pure differential privacy, with discrete Laplace noise. Above 0: discrete Gaussian noise.
        It must be below 1 / `people`, better far below; at most 1e-6 without `people`.
    rows : int
        Number of rows that are drawn; more of them are nearer to queries, at no cost in privacy.
    serve : {"rows", "prototypes"}
        Answer with the nearest of all rows, or of a few typical ones per outcome, which are much
        farther away.
    prototypes : int
        Number of prototypes of each outcome.
    plausibility : float, optional
        Weight of a row's negative log-probability against its distance to the query (in features).
        0: only distance. Default: chosen in `fit`, at most 0.45, with drawn rows as queries, so
        that answers are as likely as they can be at 0.85 times the mean distance of the nearest
        drawn row, or 1.15 times that of the nearest answers if it is more (1.1 times that of the
        nearest drawn row if rows are not moved).
    move_towards_query : bool, optional
        Whether a row takes over the query's own values, or numbers nearer to them, while the
        outcome stays desired and it does not lose more in plausibility than it gains in distance.
        That costs no budget, but tells more about the model. Default: yes, unless `model_access` is
        "private", as nothing covers it then.
    model_access : {"public", "dp", "private", "surrogate"}
        What may be known of the model: "public" (or not trained on these people), "dp" (trained
        with a budget), "private", or "surrogate": an unfitted estimator is fitted here on the drawn
        rows, its target's domain public.
    model_epsilon, model_delta : float, optional
        Budget that the model was trained with.
    rows_per_person : int
        With a subject key: rows of one person beyond these are left out; noise grows with it.
    people : int, optional
        Number of people that the table is publicly known to have, not counted in it; bounds
        `delta`.
    accountant : BudgetAccountant, optional
        Takes the budget of every fit before a row is touched. Default: the one in force, else that
        of the last fit. Copies and clones spend from the same one; a pickle loses it, and needs a
        new one to be fitted again.
    random_state : int, optional
        Makes noise and rows repeatable, for tests and examples; nothing is guaranteed then.

    Attributes
    ----------
    certificate_ : PrototypeCertificate
        What is guaranteed for all answers together.
    served_, forest_ : ServedRows, Forest
        The drawn rows, and the noised counts behind them; both may be looked at.
    plausibility_ : float
        The weight that is used.
    spent_ : float
        Epsilon spent so far, by the accountant; without one, that of this fit.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import Attribute, DPPrototypes, Population, Schema
    >>> train = pd.DataFrame(
    ...     {"age": [24, 25, 26, 27, 50] * 40, "salary": [60, 60, 30, 80, 90] * 40}
    ... )
    >>> columns = {"age": Attribute(bounds=(18, 90)), "salary": Attribute(bounds=(0, 100))}
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"], columns=columns, nullable=[])
    >>> prototypes = DPPrototypes(epsilon=1.0, rows=2000)
    >>> population = Population.from_frame(train, schema)
    >>> _ = prototypes.fit(population, model=lambda x: x.salary > 50, desired=True)
    >>> bool(prototypes.explain(train.iloc[[2]])[0].values["salary"] > 50)
    True
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 0.0
    rows: int = 60_000
    serve: Literal["rows", "prototypes"] = "rows"
    prototypes: int = 64
    plausibility: float | None = None
    move_towards_query: bool | None = None
    model_access: ModelAccess = "private"
    model_epsilon: float | None = None
    model_delta: float | None = None
    rows_per_person: int = 1
    people: int | None = None
    accountant: BudgetAccountant | None = None
    random_state: int | None = None

    _account: BudgetAccountant | None = field(default=None, init=False)  # of the last fit
    _lost_account: bool = field(default=False, init=False)  # it had one, which could not be pickled

    def fit(self, population: Population, model: Any, desired: Any) -> DPPrototypes:
        """Measure the table with noise, draw rows, and label them.

        Parameters
        ----------
        population : Population
            Its schema must declare the domain of every feature.
        model : object with ``predict``, or callable
            Returns one label per row; for a surrogate, an unfitted estimator.
        desired : label, set of labels, (low, high), "opposite" or callable, as of `KAnonymizer.fit`

        Returns
        -------
        DPPrototypes
            Itself. It holds the drawn rows and the model, but no row of the table, unless the model
            keeps some.

        Raises
        ------
        PolicyError
            If a setting is out of range, or settings contradict each other.
        SchemaError
            If a public domain is not declared, or every drawn row has a value that is never
            advised.
        BudgetError
            If the accountant has too little left, several are in force, or a copy lost its own. No
            row is touched.
        ModelError
            If the model cannot be used on rows of the declared domain, or a surrogate was fitted
            before.
        PopulationError
            If the population has no rows here.

        Warns
        -----
        PrivacyLeakWarning
            If the noise is seeded, a domain was read from rows, or rows are moved though the model
            is private.
        """
        self._check_settings()
        check_population(population)
        domain = PublicDomain.of(population, with_target=self.model_access == "surrogate")
        features = list(population.schema.features)
        if self.model_access == "surrogate":
            check_unfitted(model)
        else:
            LabelModel(model, features)  # refuses what is no model
        self.goal_ = DesiredOutcome.of(desired)
        self._warn(domain)
        self._spend()
        self.schema_, self.features_ = population.schema, population.schema.features
        codes = domain.codes_to_count(population, self.rows_per_person)
        settings = (
            codes,
            self.epsilon,
            self.delta,
            shares(len(domain.columns)),
            self.rows_per_person,
        )
        asked = (
            PrivateRows(*settings)
            if self.random_state is None
            else SeededRows(*settings, seed=self.random_state)
        )
        forest = Forest.measure(asked, domain.sizes, [column.groups for column in domain.columns])
        random = np.random.default_rng(self.random_state)
        codes, likelihood = forest.sample(self.rows, random), forest.likelihood()
        drawn = domain.draw(codes, random)
        frame = drawn[features]
        if self.model_access == "surrogate":
            model = fit_surrogate(model, frame, drawn[str(population.schema.target)])
        self.model_ = LabelModel(model, features, self.goal_)
        advisable = rows_to_advise(frame, self.schema_)
        frame, codes = frame.take(advisable).reset_index(drop=True), codes[advisable]
        labels = self.model_(frame).astype(object)
        self.goal_.check(self.model_.classes, labels)
        self.schema_.wording.check_outcomes(self.model_.classes)
        self.forest_, self.certificate_ = forest, self._certificate(asked, domain)
        served = ServedRows.of(domain, frame, labels, likelihood.of(codes))
        if self.serve == "prototypes":
            at = medoids(served, self.goal_, self.prototypes)
            served, codes = served.take(at), codes[at]
        self._mover = Mover(domain, likelihood, Cells.of(domain, codes, served.codes.numbers))
        mover, likely = self._mover if self.certificate_.moved_towards_query else None, served.cost
        self.plausibility_ = self.plausibility
        if self.plausibility is None:
            self.plausibility_ = balanced_weight(served, likely, self.goal_, self.model_, mover)
        self.served_ = replace(
            served, cost=self.plausibility_ * (likely.max() - likely) / len(features)
        )
        return self

    def explain(
        self, queries: pd.DataFrame, *, track: Track = False, groups: str | None = None
    ) -> Explanations:
        """Answer queries, one entry each, in order.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more)
        track : bool, str or RunLogger
            Whether to log the result to MLflow, or the name of the experiment to log to.
        groups : str, optional
            Column by which runs tell groups of people apart; see `Explanations.by_group`.

        Returns
        -------
        Explanations
            `PrototypeCounterfactual` entries, or withheld ones where no row has the desired
            outcome.

        Raises
        ------
        InputError
            If the table lacks features or the column of groups, has duplicate columns or no rows.
        """
        started = time.perf_counter()
        certificate = self._fitted().certificate_
        groups_of_people = Groups.read(queries, groups)
        rows: pd.DataFrame | None = None
        refused: list[str | None] = ["model_failed"] * len(queries)
        try:
            rows, answered = self.generate(queries)
            refused = [None if found else "none_found" for found in answered.tolist()]
            for i in np.flatnonzero(self._with_outcome(queries)).tolist():
                refused[i] = ALREADY_DESIRED
        except ModelError as error:
            _log.warning("explanations withheld: %s", error)
        # With "opposite" it depends on the query, and a prototype names none.
        outcome = self.goal_.common_outcome
        if outcome is None:
            outcome = Outcome()
        return explanations_of(
            rows,
            refused,
            certificate,
            policy_of(self),
            self.schema_,
            groups_of_people,
            started,
            track,
            index=as_pandas(queries).index,
            outcome=outcome,
            seed=self.random_state,
            spent=self.spent_,
        )

    def generate(self, queries: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        """Return one row per query as a table, and which of them are answers; the others must be
        left out.
        """
        served, features = self._fitted().served_, self.features_
        frame = self._in_domain(queries)
        labels = self.goal_.labels_if_needed(
            lambda: self.model_(select(frame, features)).astype(object)
        )
        asked = served.heom.encode(frame)
        at = served.nearest(asked, self.goal_, labels)
        answered = at >= 0
        at = np.where(answered, at, 0)
        # as certified, whatever was set since
        if not (self.certificate_.moved_towards_query and answered.any()):
            return served.table(at), answered

        def met(some: pd.DataFrame, of: NDArray[np.int64]) -> NDArray[np.bool_]:
            is_met = self.goal_.is_met(
                self.model_(some).astype(object), None if labels is None else labels[of]
            )
            return is_met & obey_rules(some, self.schema_)

        weight, own = np.full(len(at), self.plausibility_), self._mover.points(asked)
        return self._mover.move(at, served.labels[at], own, weight, met), answered

    def _with_outcome(self, queries: pd.DataFrame) -> NDArray[np.bool_]:
        """Return a mask of the queries that already have the outcome that the goal names.

        If the model cannot be asked about the queries, it is False: answers need no model then.
        """
        frame = self._in_domain(queries)
        try:
            return self.goal_.is_met_already(
                len(queries), lambda: self.model_(frame).astype(object)
            )
        except ModelError as error:
            _log.warning("whether queries have the desired outcome is not known: %s", error)
            return np.zeros(len(queries), dtype=bool)

    def _in_domain(self, queries: pd.DataFrame) -> pd.DataFrame:
        """Return the features of queries, in the dtypes of the rows that answer them."""
        table = require_features(queries, self.features_, "queries")
        frame = select(table, self.features_, renumber=False)
        return self._mover.domain.conform(frame, self.served_.frame.dtypes)

    def _fitted(self) -> DPPrototypes:
        if not hasattr(self, "served_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")
        return self

    def _spend(self) -> None:
        """Charge the fit to an account, if there is one; seeded noise guarantees nothing and costs
        nothing.
        """
        if self.random_state is not None:
            self.spent_ = 0.0
            return
        if self.accountant is None and self._lost_account:
            raise BudgetError(
                "this is a copy from a pickle, which could not bring the accountant along that"
                " counts what is spent on these people; set its accountant, opened with the same"
                " path="
            )
        accountant = self.accountant or BudgetAccountant.default() or self._account
        if accountant is not None:
            rho = largest_rho(self.epsilon, self.delta)
            accountant.spend(self.epsilon, self.delta, what=type(self).__name__, rho=rho)
        self._account = accountant
        self.spent_ = self.epsilon if accountant is None else accountant.spent().epsilon

    def _check_settings(self) -> None:
        policy_of(self)
        for name in ("rows", "prototypes"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise PolicyError(f"{name} must be a whole number >= 1, got {shown(value)}")
        if self.serve not in ("rows", "prototypes"):
            raise PolicyError(f'serve must be "rows" or "prototypes", got {self.serve!r}')
        weight = self.plausibility
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if weight is not None and not (is_number and 0 <= weight < math.inf):
            raise PolicyError(f"plausibility must be a finite number >= 0, got {weight!r}")
        if self.move_towards_query not in (None, False, True):
            raise PolicyError(
                "move_towards_query must be True, False or None, got"
                f" {type(self.move_towards_query).__name__}"
            )
        random_state = self.random_state
        if random_state is not None and not isinstance(random_state, (int, np.integer)):
            raise PolicyError(
                f"random_state must be a whole number or None, got {type(random_state).__name__}"
            )

    def _warn(self, domain: PublicDomain) -> None:
        said = []
        if self.random_state is not None:
            said.append(
                "the noise is seeded: whoever knows the seed takes it off, and nothing is"
                " guaranteed"
            )
        if domain.inferred:
            said.append(
                f"domains of {', '.join(domain.inferred)} were read from the rows: nothing is"
                " guaranteed"
            )
        if self.move_towards_query and self.model_access == "private":
            said.append(_MOVES_TOWARDS_QUERY)
        for text in said:
            warnings.warn(text, PrivacyLeakWarning, stacklevel=3)

    def _certificate(self, rows: PrivateRows, domain: PublicDomain) -> PrototypeCertificate:
        """Say what is guaranteed, without the population's fingerprint, which is computed from the
        exact table.
        """
        person = (
            "one person"
            if self.rows_per_person == 1
            else f"one person with up to {self.rows_per_person} rows"
        )
        holds = not rows.seeded and not domain.inferred
        return PrototypeCertificate(
            guarantee=("approximate" if self.delta else "pure") if holds else "none",
            # the composed budget is not above it, else the rows would have refused
            epsilon=self.epsilon,
            delta=self.delta,
            unit=person,
            neighbours=f"tables that differ by {person}, added or removed",
            mechanism=rows.mechanism,
            model_access=self.model_access,
            model_epsilon=self.model_epsilon,
            model_delta=self.model_delta,
            seeded=rows.seeded,
            inferred=domain.inferred,
            moved_towards_query=self.model_access != "private"
            if self.move_towards_query is None
            else self.move_towards_query,
            fit=secrets.token_hex(8),
        )

    def __repr__(self) -> str:
        return (
            f"DPPrototypes(epsilon={self.epsilon!r}, delta={self.delta!r},"
            f" model_access={self.model_access!r})"
        )

    def __copy__(self) -> DPPrototypes:  # copies spend from the same account, which no pickle holds
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> DPPrototypes:
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __sklearn_clone__(self) -> DPPrototypes:
        twin = copy.copy(self)
        for name in [name for name in twin.__dict__ if name.endswith("_")]:
            del twin.__dict__[name]
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Leave the accountant out: what is stored is paid for, and has no rows but those that the
        model keeps.
        """
        counted = self.accountant or self._account or BudgetAccountant.is_any_in_force()
        lost = self._lost_account or bool(counted)
        return {**self.__dict__, "accountant": None, "_account": None, "_lost_account": lost}
