"""Explanations: a region with a certificate, a prototype, or withheld."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from cfk_plugin.data.display import card, facts, marked, table
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import (
    Interval,
    Part,
    Region,
    json_value,
    natural,
    part_contains,
    part_of,
    part_to_text,
    to_text,
)
from cfk_plugin.data.sentences import Answer, Message, Presentation, message
from cfk_plugin.data.tables import require_person
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import require
from cfk_plugin.release.certificate import (
    AUDIT_FIGURES,
    CERTIFICATE_FIGURES,
    EXACT_FIGURES,
    Certificate,
    RegionRecount,
    figure_as_text,
)
from cfk_plugin.release.prototype_certificate import (
    DPGuarantee,
    Method,
    ModelAccess,
    PrototypeCertificate,
    PrototypePolicy,
)
from cfk_plugin.release.withheld import WITHHOLDING_REASONS, Withheld

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.codes import Codes, Floats, Ints
    from cfk_plugin.data.schema import Schema
    from cfk_plugin.release.recount import Certified

__all__ = [
    "WITHHOLDING_REASONS",
    "Certificate",
    "DPGuarantee",
    "Explanation",
    "GeneralizedCounterfactual",
    "Method",
    "ModelAccess",
    "Policy",
    "PrototypeCertificate",
    "PrototypeCounterfactual",
    "PrototypePolicy",
    "RegionRecount",
    "Released",
    "Withheld",
]

E = TypeVar("E", bound="_ReleasedExplanation")
_PLAIN_PRESENTATION = Presentation()
_UNNAMED_OUTCOME = Outcome()
_FIGURES_SHOWN = ("k", "ncp", "pureness", "epsilon", "delta", "guarantee", "covers")


class _ReleasedExplanation:
    """Base of released explanations: their texts, and their rows in tables.

    `recount` and `presentation` are no fields of the dataclasses that derive from this class.
    `asdict`, web frameworks and printers would write them, as they write every field.
    """

    __slots__ = ("_recount", "presentation")
    status: ClassVar[Literal["released"]] = "released"
    __dataclass_fields__: ClassVar[dict[str, Any]]
    query: int
    presentation: Presentation
    _recount: Any  # RegionRecount; None of a prototype
    certificate: Certificate | PrototypeCertificate
    titles: Mapping[str, str]  # feature to the name of its node in a hierarchy
    _figures: tuple[str, ...]  # fields of the certificate that a run logs in columns ...
    _texts: tuple[str, ...]  # ... and of `to_dict`, as JSON
    _values: str  # the one of `_texts` that has released values by feature

    def _set(self, **attributes: object) -> None:
        """Set attributes of a new explanation, which cannot be set later."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def _attributes(self) -> dict[str, Any]:
        """Return the fields of the dataclass, and what is no field."""
        names = [*self.__dataclass_fields__, *_ReleasedExplanation.__slots__]
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies have what is no field of the dataclass."""
        return _explanation_with, (type(self), self._attributes())

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Return every feature that the explanation names, with its part."""

    @abstractmethod
    def point(self) -> Mapping[str, Any]:
        """Return the value of each feature that has one: what a person is advised."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything that may be disclosed, as JSON-ready values."""

    def changes(self, factual: Mapping[str, Any]) -> set[str]:
        """Return the features that a person has to change.

        The value of the person is not the advised one, or not in the part if there is none.

        Parameters
        ----------
        factual : mapping
            The person's value of some features, in the types of the training table.
        """
        parts = self.answer().at_point().parts
        return {
            name
            for name, value in factual.items()
            if name in parts and not part_contains(parts[name], value)
        }

    def cells(self) -> dict[str, str]:
        """Return every feature as the text of a table cell.

        For example ``24–27``, ``{A, B}``, ``60``, or the name of a node.
        """
        return {
            name: self.titles.get(name) or part_to_text(part) for name, part in self.parts().items()
        }

    @abstractmethod
    def answer(self) -> Answer:
        """Return the content of the explanation, as far as a sentence needs it."""

    def text(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> str:
        """Write the explanation for the person, in one or a few sentences.

        Parameters
        ----------
        factual : mapping or Series, optional
            The person's own value of every feature. The text then gives it beside the new value,
            and leaves out features that need no change. Without it the text names all features.
        wording : Wording, optional
            Other words, or another language, than those of the schema.

        Returns
        -------
        str

        Raises
        ------
        InputError
            If `factual` does not hold the values of one person, or lacks a feature.
        """
        return str(self.message(factual, wording))

    def message(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> Message:
        """Return the text in parts: lead, changes and notes, for pages that show a list.

        The parameters are those of `text`.
        """
        answer = self.answer()
        if factual is not None:
            require_person(factual, answer.parts)
        if wording is None:
            wording = self.presentation.wording
        else:
            require("wording", wording, Wording, 'give Wording(language="de", titles=...)')
        return message(answer, factual, wording)

    def __str__(self) -> str:
        """Return the sentence, without the person's own values."""
        return self.text()

    def _repr_html_(self) -> str:
        """Return the sentence, the cells, and figures."""
        rows = [(name, marked(text)) for name, text in self.cells().items()]
        figures = self.certificate.to_dict()
        shown_figures = {
            name: figure_as_text(figures[name]) for name in _FIGURES_SHOWN if name in figures
        }
        return card(
            f"Released explanation, query {self.query}",
            self.text(),
            table((), rows),
            facts(shown_figures),
        )

    @abstractmethod
    def features_from_the_query(self) -> frozenset[str]:
        """Return the features whose released value is the query's or was computed from it."""

    def row(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the explanation as a row of a table: figures, parts as JSON, features as text."""
        return self._row(columns, self.to_dict(), self.cells())

    def row_to_log(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the row that a run logs, without values that come from the query.

        The readers of a run must not learn the person's own values. The region stays.
        """
        left_out = self.features_from_the_query()
        content = self.to_dict()
        content["certificate"] |= self._exact_figures()
        values = content[self._values]
        content[self._values] = {name: values[name] for name in values if name not in left_out}
        cells = {name: text for name, text in self.cells().items() if name not in left_out}
        return self._row(columns, content, cells)

    def _exact_figures(self) -> dict[str, float]:
        """Return the figures of the recount that the certificate states less exactly."""
        if self._recount is None:
            return {}
        return {name: getattr(self._recount, name) for name in EXACT_FIGURES}

    def _row(
        self, columns: Sequence[str], content: Mapping[str, Any], cells: Mapping[str, str]
    ) -> dict[str, Any]:
        return {
            "query": int(self.query),
            "status": self.status,
            **{name: content["certificate"][name] for name in self._figures},
            **{name: json.dumps(content[name], ensure_ascii=False) for name in self._texts},
            **{f"feature.{name}": cells.get(name) for name in columns},
        }


def _explanation_with(kind: type[E], attributes: Mapping[str, object]) -> E:
    """Return a copy of a released explanation, made of its attributes."""
    explanation = kind.__new__(kind)
    explanation._set(**attributes)
    return explanation


@dataclass(frozen=True, slots=True, init=False)
class PrototypeCounterfactual(_ReleasedExplanation):
    """A released prototype: a whole row that belongs to no person.

    Attributes
    ----------
    query : int
        Position of the query that it answers.
    values : mapping
        Feature to value.
    certificate : PrototypeCertificate
        Shared with all other answers of the fit.
    presentation : Presentation
        Helps to show the prototype but is no part of it: the wording.
    outcome : Outcome
        The desired outcome.
    """

    query: int
    values: Mapping[str, Any]
    certificate: PrototypeCertificate
    outcome: Outcome

    titles = MappingProxyType({})
    _figures = ("guarantee", "epsilon", "delta")
    _texts = ("prototype", "certificate")
    _values = "prototype"

    def __init__(
        self,
        query: int,
        values: Mapping[str, Any],
        certificate: PrototypeCertificate,
        presentation: Presentation = _PLAIN_PRESENTATION,
        outcome: Outcome = _UNNAMED_OUTCOME,
    ) -> None:
        self._set(
            query=query,
            values={name: natural(value) for name, value in values.items()},
            certificate=certificate,
            presentation=presentation,
            _recount=None,
            outcome=outcome,
        )

    def features_from_the_query(self) -> frozenset[str]:
        """Return all features: the prototype is the one that is nearest to the query."""
        return frozenset(self.values)

    def parts(self) -> dict[str, Part]:
        """Return every feature with its single value."""
        return {name: part_of(value) for name, value in self.values.items()}

    def point(self) -> Mapping[str, Any]:
        """Return the value of every feature."""
        return self.values

    def answer(self) -> Answer:
        """Return the content of the prototype: a single value of every feature."""
        return Answer(
            parts=self.parts(),
            outcome=self.outcome,
            nodes=self.titles,
            nobody_chooses=self.presentation.nobody_chooses,
            never_advised=self.presentation.never_advised,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything that may be disclosed, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "prototype": {name: json_value(value) for name, value in self.values.items()},
            "certificate": self.certificate.to_dict(),
        }


@dataclass(frozen=True, slots=True, init=False)
class GeneralizedCounterfactual(_ReleasedExplanation):
    """A released explanation: a region of the quasi-identifiers, and private values.

    An answer from a catalogue is true at one point: the advised quasi-identifiers and the private
    values. The point is in the region, or has the query's own value where it is outside.

    Attributes
    ----------
    query : int
        Position of the query that it answers.
    region, titles : Region, mapping
        What the quasi-identifiers are generalised to, and the names of nodes of hierarchies.
    released : mapping
        Private attribute to its value.
    certificate : Certificate
        The figures of the recount that the receiver may see.
    recount : RegionRecount
        All figures of the recount, for the data holder only; no field of the dataclass.
    outcome : Outcome
        The outcome that the certificate's figures are about.
    presentation : Presentation
        Helps to show the explanation but is no part of it: the wording, and regions to draw it
        among.
    advised : mapping
        Quasi-identifier to its value at the point. Empty for a published entry and under the lookup
        guarantee, whose explanations have no point.
    least : mapping
        Feature to the value from which on the model would accept the point without the margin, all
        else as advised. Features for which this is the advised value are left out.
    """

    query: int
    region: Region
    released: Mapping[str, Any]
    certificate: Certificate
    titles: Mapping[str, str]
    outcome: Outcome
    advised: Mapping[str, Any]
    least: Mapping[str, Any]

    _figures = CERTIFICATE_FIGURES
    _texts = ("region", "released")
    _values = "released"

    def __init__(
        self,
        query: int,
        region: Region,
        released: Mapping[str, Any],
        certificate: Certificate,
        recount: RegionRecount,
        titles: Mapping[str, str] | None = None,
        outcome: Outcome = _UNNAMED_OUTCOME,
        presentation: Presentation = _PLAIN_PRESENTATION,
        advised: Mapping[str, Any] = MappingProxyType({}),
        least: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if titles is None:
            titles = {}
        self._set(
            query=query,
            region=region,
            released=released,
            certificate=certificate,
            _recount=recount,
            titles=titles,
            outcome=outcome,
            presentation=presentation,
            advised={name: natural(value) for name, value in advised.items()},
            least={name: natural(value) for name, value in least.items()},
        )

    @classmethod
    def of_verdict(
        cls,
        verdict: Certified,
        query: int,
        private: Floats,
        outcome: Outcome,
        codes: Codes,
        schema: Schema,
        advised: Mapping[str, Any] = MappingProxyType({}),
        least: Mapping[str, Any] = MappingProxyType({}),
    ) -> GeneralizedCounterfactual:
        """Return a certified region with encoded private values, shape (n_private,)."""
        return cls(
            query=query,
            region=verdict.region,
            released=values_of(codes, codes.private, private),
            certificate=verdict.certificate,
            recount=verdict.recount,
            titles=_titles_of(verdict.region, codes),
            outcome=outcome,
            presentation=Presentation.of(schema),
            advised=advised,
            least=least,
        )

    def with_query(self, query: int) -> GeneralizedCounterfactual:
        """Return the same explanation as the answer to another query."""
        return _explanation_with(type(self), self._attributes() | {"query": query})

    @property
    def recount(self) -> RegionRecount:
        """All figures of the recount, for the data holder only; no field of the dataclass."""
        recount: RegionRecount = self._recount
        return recount

    def features_from_the_query(self) -> frozenset[str]:
        """Return the private attributes whose value is the query's or was computed from it."""
        return frozenset((*self.recount.moved, *self.recount.unchanged))

    def parts(self) -> dict[str, Part]:
        """Return every feature of the region and of the released values, each with its part."""
        released = {name: part_of(value) for name, value in self.released.items()}
        return {**self.region.parts, **released}

    def point(self) -> Mapping[str, Any]:
        """Return the advised quasi-identifiers, if there are any, and the released values."""
        return {**self.advised, **self.released}

    def answer(self) -> Answer:
        """Return the content of the explanation, feature by feature."""
        return Answer(
            parts=self.parts(),
            outcome=self.outcome,
            nodes=self.titles,
            unchanged=self.recount.unchanged,
            pureness=self.certificate.pureness,
            advised=self.advised,
            least=self.least,
            nobody_chooses=self.presentation.nobody_chooses,
            never_advised=self.presentation.never_advised,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything that may be disclosed, as JSON-ready values."""
        content = {
            "query": self.query,
            "status": self.status,
            "outcome": self.outcome.to_dict(),
            "region": self.region.to_dict(),
            "released": {name: json_value(value) for name, value in self.released.items()},
        }
        if self.advised:
            content["advised"] = {name: json_value(value) for name, value in self.advised.items()}
        if self.least:
            content["least"] = {name: json_value(value) for name, value in self.least.items()}
        if self.recount.unchanged:
            content["unchanged"] = list(self.recount.unchanged)
        content["certificate"] = self.certificate.to_dict()
        return content

    def audit_row(self, quasi_identifiers: Sequence[str]) -> dict[str, Any]:
        """Return the figures that a run logs for the data holder only."""
        row = {name: getattr(self.recount, name) for name in AUDIT_FIGURES}
        for name, ncp in zip(quasi_identifiers, self.recount.ncp_parts, strict=False):
            row[f"ncp.{name}"] = ncp
        return row


def values_of(codes: Codes, columns: Ints, values: Floats) -> dict[str, Any]:
    """Return values of some columns as plain Python shows them, in the order of the schema.

    `columns` and `values` have the shape (n_columns,); NaN is left out.
    """
    value_of_column = dict(zip(columns.tolist(), values.tolist(), strict=True))
    return {
        codes.names[j]: codes.columns[j].value(value_of_column[j])
        for j in sorted(value_of_column)
        if not isnan(value_of_column[j])
    }


def _titles_of(region: Region, codes: Codes) -> dict[str, str]:
    """Return the names of nodes of hierarchies that parts of a region are, by quasi-identifier."""
    titles = {}
    for j in codes.quasi.tolist():
        column = codes.columns[j]
        part = region[column.name]
        hierarchy = column.attribute.hierarchy
        if hierarchy is None or isinstance(part, Interval) or len(part) == 1 or None in part:
            continue
        title = hierarchy.titles[hierarchy.cover([to_text(value) for value in part])]
        if title is not None:
            titles[column.name] = title
    return titles


Released = GeneralizedCounterfactual | PrototypeCounterfactual
Explanation = Released | Withheld
"""What one row of a call gets."""
Policy = PrivacyPolicy | PrototypePolicy
"""The rules of a release: of regions under the first, of prototypes under the second."""
