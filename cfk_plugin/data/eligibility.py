"""Who counts among the k people, and which of them may be in one group."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import HostOnly, PolicyError

OUTCOMES = "outcomes"
"""Name under which the label of each class is sealed."""


class EligibilityClasses(HostOnly):
    """Which rows may be in one group, and which class a counterfactual belongs to.

    If everybody counts, there is one class. If only eligible people count, those with the desired
    outcome are one class; under an outcome that depends on the factual, those with each predicted
    label are one.

    Parameters
    ----------
    policy : PrivacyPolicy
        Whether everybody counts.
    desired_outcome : DesiredOutcome
    rows : TrainingLabels
        The model is asked about all rows, if only eligible people count and there are rows.

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
        if population.sealed is not None:
            # There are no rows; the label of each class was sealed.
            sealed_labels = population.sealed.facts.get(OUTCOMES)
            if desired_outcome.has_class_per_label and sealed_labels is not None:
                self._class_of_label = _numbered(sealed_labels)
            return
        if not policy.counts_eligible:
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
