"""The two kinds of released explanations: a generalised counterfactual and a prototype."""

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

    `recount` and `presentation` are attributes, but not fields of the dataclasses that derive from
    this class: `asdict`, web frameworks and printers write every field, and would disclose them.
    """

    __slots__ = ("_recount", "presentation")
    status: ClassVar[Literal["released"]] = "released"
    __dataclass_fields__: ClassVar[dict[str, Any]]
    query: int
    presentation: Presentation
    _recount: Any  # RegionRecount; None for a prototype
    certificate: Certificate | PrototypeCertificate
    titles: Mapping[str, str]  # feature to the name of its node in a hierarchy
    _figures: tuple[str, ...]  # fields of the certificate that are columns of `row`
    _texts: tuple[str, ...]  # keys of `to_dict` that are columns of `row`, as JSON
    _values: str  # the key in `_texts` with the released values by feature

    def _set(self, **attributes: object) -> None:
        """Set attributes of a new explanation, which cannot be set later."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def _attributes(self) -> dict[str, Any]:
        """Return all attributes: the fields of the dataclass, `_recount` and `presentation`."""
        names = [*self.__dataclass_fields__, *_ReleasedExplanation.__slots__]
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy all attributes; by default, only the fields of the dataclass would be copied."""
        return _explanation_with, (type(self), self._attributes())

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Return the interval or the set of values of each feature in the explanation."""

    @abstractmethod
    def point(self) -> Mapping[str, Any]:
        """Return the single value that a person is advised, for each feature that has one."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the content that the recipient may see, as values for JSON."""

    def changes(self, factual: Mapping[str, Any]) -> set[str]:
        """Return the features that a person has to change.

        A feature changes if the person's value is not the advised one, or is outside the part if
        the explanation advises no value.

        Parameters
        ----------
        factual : mapping
            The person's values by feature, in the types of the training table. Some features are
            enough.

        Returns
        -------
        set of str
        """
        parts = self.answer().at_point().parts
        return {
            name
            for name, value in factual.items()
            if name in parts and not part_contains(parts[name], value)
        }

    def cells(self) -> dict[str, str]:
        """Return the text of each feature for a table cell.

        Examples are ``24–27``, ``{A, B}``, ``60``, or the name of a node of a hierarchy.
        """
        return {
            name: self.titles.get(name) or part_to_text(part) for name, part in self.parts().items()
        }

    @abstractmethod
    def answer(self) -> Answer:
        """Return the content of the explanation for its sentence."""

    def text(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> str:
        """Write the explanation for the person, in one or a few sentences.

        Parameters
        ----------
        factual : mapping or Series, optional
            The person's value of every feature. The text then has the old value next to the new
            value, and omits features that need no change. Without it, the text has all features.
        wording : Wording, optional
            The words and language to use, instead of those of the schema.

        Returns
        -------
        str

        Raises
        ------
        InputError
            If `factual` is not the values of one person, or lacks a feature.
        """
        return str(self.message(factual, wording))

    def message(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> Message:
        """Return the text of `text` in parts: lead, changes and notes.

        A page can then show the changes as a list. The parameters are those of `text`.
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
        """Return the sentence, the cells and the figures, as HTML for a notebook."""
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
        """Return the row that a run logs: with exact figures, without values from the query.

        Readers of a run must not learn the applicant's values. The region stays.
        """
        omitted = self.features_from_the_query()
        content = self.to_dict()
        content["certificate"] |= self._exact_figures()
        values = content[self._values]
        content[self._values] = {name: values[name] for name in values if name not in omitted}
        cells = {name: text for name, text in self.cells().items() if name not in omitted}
        return self._row(columns, content, cells)

    def _exact_figures(self) -> dict[str, float]:
        """Return the exact figures of the recount that the certificate rounds or replaces."""
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
    """Return a released explanation with these attributes, without calling its constructor."""
    explanation = kind.__new__(kind)
    explanation._set(**attributes)
    return explanation


@dataclass(frozen=True, slots=True, init=False)
class PrototypeCounterfactual(_ReleasedExplanation):
    """A released prototype: one value for every feature, which belong to no person.

    Attributes
    ----------
    query : int
        Position of the query that it answers.
    values : mapping
        Feature to value.
    certificate : PrototypeCertificate
        The privacy budget. All answers of a fit have the same certificate.
    presentation : Presentation
        The wording to show the prototype with; it is not part of the explanation.
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
        """Return all features, because the prototype is chosen by its distance to the query."""
        return frozenset(self.values)

    def parts(self) -> dict[str, Part]:
        """Return every feature with its single value."""
        return {name: part_of(value) for name, value in self.values.items()}

    def point(self) -> Mapping[str, Any]:
        """Return the value of every feature."""
        return self.values

    def answer(self) -> Answer:
        """Return the content of the prototype for its sentence."""
        return Answer(
            parts=self.parts(),
            outcome=self.outcome,
            nodes=self.titles,
            nobody_chooses=self.presentation.nobody_chooses,
            never_advised=self.presentation.never_advised,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content that the recipient may see, as values for JSON."""
        return {
            "query": self.query,
            "status": self.status,
            "prototype": {name: json_value(value) for name, value in self.values.items()},
            "certificate": self.certificate.to_dict(),
        }


@dataclass(frozen=True, slots=True, init=False)
class GeneralizedCounterfactual(_ReleasedExplanation):
    """A released explanation: a region of the quasi-identifiers, and private values.

    An answer from a catalogue also advises a point: values of the quasi-identifiers that, with the
    private values, have the outcome under the model. At the point, each quasi-identifier has a
    value in the region or the query's value.

    Attributes
    ----------
    query : int
        Position of the query that it answers.
    region : Region
        Quasi-identifier to its interval or set of values.
    released : mapping
        Private attribute to its value.
    certificate : Certificate
        The figures of the recount that the recipient may see.
    titles : mapping
        Quasi-identifier to the name of a node of its hierarchy, if the region is such a node.
    outcome : Outcome
        The outcome that the certificate's figures are about.
    advised : mapping
        Quasi-identifier to its value at the point. Empty for a published entry and with the lookup
        guarantee: these advise no point.
    least : mapping
        Feature to the value nearest to the query's at which the model gives the outcome, without
        the margin and with all other features as advised. Omitted if it is the advised value.
    recount : RegionRecount
        All figures of the recount, for the data holder only; not a field of the dataclass.
    presentation : Presentation
        The wording to show the explanation with, for example; it is not part of the explanation.
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
        """Return the explanation for a certified region.

        `private` contains the codes of the private values, shape (n_private,).
        """
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
        """All figures of the recount, for the data holder only; not a field of the dataclass."""
        recount: RegionRecount = self._recount
        return recount

    def features_from_the_query(self) -> frozenset[str]:
        """Return the private attributes whose value is the query's or was computed from it."""
        return frozenset((*self.recount.moved, *self.recount.unchanged))

    def parts(self) -> dict[str, Part]:
        """Return the part of each feature: from the region, or the single private value."""
        released = {name: part_of(value) for name, value in self.released.items()}
        return {**self.region.parts, **released}

    def point(self) -> Mapping[str, Any]:
        """Return the advised values of quasi-identifiers, if any, and the private values."""
        return {**self.advised, **self.released}

    def answer(self) -> Answer:
        """Return the content of the explanation for its sentence."""
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
        """Return the content that the recipient may see, as values for JSON."""
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
        """Return figures of the recount that a run logs, for the data holder only."""
        row = {name: getattr(self.recount, name) for name in AUDIT_FIGURES}
        for name, ncp in zip(quasi_identifiers, self.recount.ncp_parts, strict=False):
            row[f"ncp.{name}"] = ncp
        return row


def values_of(codes: Codes, columns: Ints, values: Floats) -> dict[str, Any]:
    """Decode values of some columns to Python objects by feature, in the order of the schema.

    `columns` (positions) and `values` (codes) have shape (n_columns,). Missing values, NaN, are
    omitted.
    """
    value_of_column = dict(zip(columns.tolist(), values.tolist(), strict=True))
    return {
        codes.names[j]: codes.columns[j].value(value_of_column[j])
        for j in sorted(value_of_column)
        if not isnan(value_of_column[j])
    }


def _titles_of(region: Region, codes: Codes) -> dict[str, str]:
    """Return the name of the hierarchy's node for each quasi-identifier whose part is one."""
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
"""One answer of a call."""
Policy = PrivacyPolicy | PrototypePolicy
"""The policy of regions, or of prototypes."""
