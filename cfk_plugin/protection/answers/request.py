"""What is asked of a catalogue: for which queries, under which constraints, from which start."""

from __future__ import annotations

from dataclasses import dataclass

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.axes import Ints


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the search for answers prefers among results that are true.

    Attributes
    ----------
    change_cost : float
        What each private attribute that differs from the query's adds to the distance of a result.
    rounding : bool
        Whether numbers that change are rounded where that keeps the outcome.
    """

    change_cost: float
    rounding: bool


@dataclass(frozen=True, eq=False, repr=False)
class ExplainerStart(HostOnly):
    """An explainer's counterfactuals, from which the search for answers starts.

    Attributes
    ----------
    counterfactuals : EncodedTable, one row per query
    groups : int64, shape (n_queries,)
        The group of each counterfactual; -1 for none.
    may_keep_own_values : bool
        False where counterfactuals may be training rows, and private values of single people must
        not be released.
    """

    counterfactuals: EncodedTable
    groups: Ints
    may_keep_own_values: bool = True


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CatalogueRequest(HostOnly):
    """One search of a catalogue, for n queries.

    One query is asked for one answer. A person who wants several answers asks as many queries,
    which are the same row and have the same number in `person_of_query`.

    Attributes
    ----------
    constraints : Constraints
        The queries, and what may change for the people who ask them.
    open_to : bool, shape (n_queries, n_classes)
        True for the eligibility classes that may answer a query; see `EligibilityClasses.open_to`.
    person_of_query : int64, shape (n_queries,)
        Queries of one person get different answers.
    options : SearchOptions
    explainer_start : ExplainerStart, optional
        Where the search starts; at the queries if it is None.
    asks_start_labels : bool
        Whether the model is asked about the explainer's counterfactuals, too, in the call that asks
        the first question. Only with an `explainer_start`.
    asks_query_labels : bool
        The same, about the queries.
    """

    constraints: Constraints
    open_to: Mask
    person_of_query: Ints
    options: SearchOptions
    explainer_start: ExplainerStart | None = None
    asks_start_labels: bool = False
    asks_query_labels: bool = False

    def __post_init__(self) -> None:
        if self.asks_start_labels and self.explainer_start is None:
            raise ValueError("asks_start_labels needs an explainer_start")

    def __len__(self) -> int:
        return len(self.constraints)

    @property
    def queries(self) -> EncodedTable:
        return self.constraints.queries

    @property
    def start(self) -> EncodedTable:
        """Where the search of each query starts: the query itself, or a counterfactual."""
        if self.explainer_start is None:
            return self.queries
        return self.explainer_start.counterfactuals
