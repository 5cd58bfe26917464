"""The audits that are planned together: how each is run at some sizes, and what it has to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import ExplainerFactory, Owner, ProtectedOwner, Sample
from cfk_plugin.audit.attribute_inference import attribute_inference, attribute_inference_work
from cfk_plugin.audit.extraction import (
    Paces,
    attribute_inference_through_surrogate,
    attribute_inference_through_surrogate_work,
    extraction,
    extraction_work,
    membership_through_surrogate,
    membership_through_surrogate_work,
)
from cfk_plugin.audit.membership import membership, membership_work
from cfk_plugin.audit.planning.linked import linkage_of, linkage_work
from cfk_plugin.audit.planning.sizes import Sizes
from cfk_plugin.audit.report import AuditReport
from cfk_plugin.audit.running import Work
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

Report = AttackReport | AuditReport


@dataclass(frozen=True, slots=True, repr=False)
class Scope:
    """What audits need besides an owner, people and sizes.

    Attributes
    ----------
    quasi_identifiers : tuple of str
        What an attacker knows of everybody.
    explainer : ExplainerFactory
        Finds raw counterfactuals where an owner has no explainer.
    attribute : str, optional
        Private attribute that is guessed through a copy of the model.
    """

    quasi_identifiers: tuple[str, ...]
    explainer: ExplainerFactory
    attribute: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AuditTask:
    """One owner under some audit at some sizes. Host side only."""

    owner: Owner
    sample: Sample
    sizes: Sizes
    scope: Scope
    paces: Paces = field(default_factory=dict)

    @property
    def n_train(self) -> int:
        """How many people a model is trained on: what the sizes say, at most 3 of 10 people of the sample."""
        return min(self.sizes.people, 3 * len(self.sample) // 10)

    @property
    def explained(self) -> int:
        """How many explanations are asked for, at most: half of whoever is not trained on may ask, if undesired."""
        asking = (len(self.sample) - self.n_train) / 2
        return min(self.sizes.explained, round(asking * float((~self.sample.y).mean())))

    @property
    def attacked(self) -> int:
        """How many members, and how many others, membership attacks: who is undesired, of about so many people."""
        return min(self.sizes.attacked, round(self.n_train * float((~self.sample.y).mean())))

    @property
    def crowd(self) -> Sample:
        """The people of an audit that splits all it is given into eighths, of which one is trained on."""
        return self.sample.take(np.arange(min(len(self.sample), 8 * self.sizes.people)))

    @property
    def surrogate(self) -> dict[str, Any]:
        """Settings of attacks through a copy."""
        return {"queries": self.sizes.queries[-1], "attacked": self.sizes.attacked}

    @property
    def guessed(self) -> dict[str, Any]:
        """Settings of the attack on an attribute through a copy."""
        if self.scope.attribute is None:
            raise InputError("which attribute is guessed through a copy of the model? Name it in the scope")
        return {"attribute": self.scope.attribute, **self.surrogate}


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit.

    Attributes
    ----------
    run : callable
        From a task and options (seed, n_jobs, kept, progress) to a report.
    work : callable
        From a task to what it has to do.
    attacks : callable
        Whether it has something to attack in what an owner answers.
    """

    run: Callable[..., Report]
    work: Callable[[AuditTask], Work]
    attacks: Callable[[Owner], bool] = lambda owner: True  # noqa: ARG005 - most attack everybody


def _linkage(task: AuditTask, *, seed: int, progress: Progress | None, **_: Any) -> Report:
    if not isinstance(task.owner, ProtectedOwner):
        raise InputError(f"owner {task.owner.name!r} gives out no regions of k people; linkage attacks those")
    settings: dict[str, Any] = {"n_train": task.n_train, "explained": task.explained}
    return linkage_of(task.owner, task.sample, task.scope.explainer, **settings, seed=seed, progress=progress)


def _attributes(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"n_train": task.n_train, "queries": task.explained}
    quasi_identifiers = task.scope.quasi_identifiers
    return attribute_inference(task.owner, task.sample, quasi_identifiers=quasi_identifiers, **settings, **options)


def _attributes_work(task: AuditTask) -> Work:
    settings: dict[str, Any] = {"n_train": task.n_train, "queries": task.explained}
    return attribute_inference_work(task.sample, quasi_identifiers=task.scope.quasi_identifiers, **settings)


def _membership(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"n_shadows": task.sizes.shadows, "attacked": task.sizes.attacked}
    return membership(task.owner, task.sample, n_train=task.n_train, **settings, **options)


def _membership_work(task: AuditTask) -> Work:
    return membership_work(n_shadows=task.sizes.shadows, attacked=task.attacked)


def _extraction(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"queries": task.sizes.queries, "repeats": task.sizes.repeats}
    return extraction(task.owner, task.crowd, **settings, **options)


def _extraction_work(task: AuditTask) -> Work:
    settings: dict[str, Any] = {"queries": task.sizes.queries, "repeats": task.sizes.repeats}
    return extraction_work(task.owner, task.crowd, **settings, paces=task.paces)


AUDITS: Mapping[str, Audit] = {
    "linkage": Audit(
        _linkage,
        lambda task: linkage_work(n_train=task.n_train, explained=task.explained),
        lambda owner: isinstance(owner, ProtectedOwner),
    ),
    "attribute_inference": Audit(_attributes, _attributes_work),
    "membership": Audit(_membership, _membership_work),
    "extraction": Audit(_extraction, _extraction_work),
    "membership_surrogate": Audit(
        lambda task, **options: membership_through_surrogate(task.owner, task.crowd, **task.surrogate, **options),
        lambda task: membership_through_surrogate_work(task.owner, task.crowd, **task.surrogate, paces=task.paces),
    ),
    "attribute_surrogate": Audit(
        lambda task, **options: attribute_inference_through_surrogate(
            task.owner, task.crowd, **task.guessed, **options
        ),
        lambda task: attribute_inference_through_surrogate_work(
            task.owner, task.crowd, **task.guessed, paces=task.paces
        ),
    ),
}
"""The audits by name, in the order in which they are run."""
