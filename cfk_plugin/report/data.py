"""The report as data: what is in the JSON, and all that a rendering may look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cfk_plugin.report.amount import NOT_MEASURED as NOT_MEASURED  # noqa: PLC0414 - part of this module's names
from cfk_plugin.report.amount import Amount as Amount  # noqa: PLC0414 - as well
from cfk_plugin.report.attack import Attack as Attack  # noqa: PLC0414 - as well

SCHEMA_VERSION = 1
"""Version of the layout; the JSON Schema is ``schemas/report-1.schema.json``."""

Edition = Literal["internal", "external"]
Status = Literal["pass", "review", "fail", "not_measured"]
Verdict = Literal["pass", "review", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of the report.

    Attributes
    ----------
    id : str
        Key of `ReportData.definitions`.
    amount : Amount
    section : int
        Section of the report that it stands in.
    method : str
        How the interval or figure was obtained, in a few words.
    """

    id: str
    amount: Amount
    section: int
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the verdict.

    Attributes
    ----------
    id : str
        Key of `ReportData.definitions`.
    status : Status
    measured : Amount
    threshold : Amount
        What it is compared with.
    source : str
        Where the threshold comes from.
    section : int
        Section with the evidence.
    text : str
        What was found and what would change it, in one or two plain sentences.
    evidence : tuple of str
        Run ids, or ``run/step`` of single explanations; empty in the external edition.
    """

    id: str
    status: Status
    measured: Amount
    threshold: Amount
    source: str
    section: int
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Amounts per category, for a chart and its table.

    Attributes
    ----------
    id : str
        ``class_sizes``, ``risk``, ``ncp_by_attribute``, ``pureness``, ``frontier``, ``intersection``, ``roc``.
    section : int
    labels : tuple of str
        Of the categories, in order.
    series : mapping of str to tuple of Amount
        Name of a series to one amount per category.
    marks : mapping of str to float
        Lines that belong in the chart: what they are, and where.
    note : str
    """

    id: str
    section: int
    labels: tuple[str, ...]
    series: Mapping[str, tuple[Amount, ...]]
    marks: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A metric in one group of those who asked, against the rest."""

    attribute: str
    group: str
    metric: str
    n: Amount
    mean: Amount
    rest: Amount
    gap: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """Something that only a person can say, and nobody has said yet."""

    id: str
    question: str
    role: str
    section: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a figure or a check is.

    Attributes
    ----------
    name, formula, range, direction, source, does_not_say : str
        ``formula`` in one line; ``range`` and ``direction`` such as ``0 to 1`` and ``lower is better``.
    """

    name: str
    formula: str
    range: str
    direction: str
    source: str
    does_not_say: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report says. What must not be shown is not in it.

    Attributes
    ----------
    report : mapping
        ``id``, ``edition``, ``title``, ``verdict``, ``period`` (``first``, ``last``: of the explanations, ISO 8601;
        ``since``, ``until``: what was asked for), ``as_of`` (time of the latest evidence; there is no other clock),
        ``reason``, ``command``, ``not_covered`` (three sentences).
    system : mapping of str to str or None
        What people said of system and release, by the id of the question; None is a placeholder.
    population : mapping
        ``people``, ``rows`` (Amount), ``subject_key`` (bool or None), ``fingerprint``, ``unique``, ``below_k``
        (Amount: shares before protection), ``k``.
    attributes : tuple of mapping
        ``name``, ``role``, ``kind``, ``weight``, ``distinct`` (Amount), ``bounds_source`` (declared, learned,
        not needed, not known).
    policy : mapping
        ``preset``, ``policies`` (list of ``{sha256, settings, first, last, asked}``), ``thresholds`` (list of
        ``{id, value, source}``), ``techniques`` (list of str), ``methods``, ``guarantees``, ``generators``, ``seed``,
        ``deviations`` (list of str).
    releases : mapping
        ``asked``, ``released``, ``exact`` (regions that are one value combination), ``generalised``, ``prototypes``,
        ``suppressed``, ``untracked`` (Amount), ``reasons`` (mapping of reason to Amount), ``latency`` (mapping of
        quantile to Amount, seconds).
    checks : tuple of Check
    metrics : tuple of Metric
    distributions : tuple of Distribution
    groups : tuple of Group
    attacks : tuple of Attack
    criteria : tuple of mapping
        The three criteria: ``criterion``, ``evidence``, ``status``, ``text``.
    dp : mapping or None
        Statement of the prototypes' certificate; None where there are no prototypes.
    limits : tuple of str
    placeholders : tuple of Placeholder
    sign_off : tuple of mapping
        ``role``, ``name``, ``date``; None where nobody signed.
    controls : tuple of mapping
        Control map: ``control``, ``requires``, ``section``, ``status``, ``checked_on``.
    environment : mapping
        ``packages``, ``plugins``, ``python``.
    runs : tuple of mapping
        ``run``, ``name``, ``experiment``, ``started``, ``asked``, ``verdict``; empty in the external edition.
    certificates : tuple of mapping
        Worst releases first: ``id``, ``k``, ``ncp``, ``pureness`` (Amount), ``optimality``, ``status``.
    changes : tuple of mapping or None
        ``what``, ``before``, ``after``: since the earlier report that was given; None without one.
    suppressed_cells : tuple of str
        Places at which something is hidden.
    definitions : mapping of str to Definition
        Of every metric, check and figure in the report.
    """

    report: Mapping[str, Any]
    system: Mapping[str, str | None]
    population: Mapping[str, Any]
    attributes: Sequence[Mapping[str, Any]]
    policy: Mapping[str, Any]
    releases: Mapping[str, Any]
    checks: Sequence[Check]
    metrics: Sequence[Metric]
    distributions: Sequence[Distribution]
    groups: Sequence[Group]
    attacks: Sequence[Attack]
    criteria: Sequence[Mapping[str, Any]]
    dp: Mapping[str, Any] | None
    limits: Sequence[str]
    placeholders: Sequence[Placeholder]
    sign_off: Sequence[Mapping[str, str | None]]
    controls: Sequence[Mapping[str, str]]
    environment: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]]
    certificates: Sequence[Mapping[str, Any]]
    changes: Sequence[Mapping[str, str]] | None
    suppressed_cells: Sequence[str]
    definitions: Mapping[str, Definition]
    schema_version: int = SCHEMA_VERSION

    @property
    def verdict(self) -> Verdict:
        """The verdict: pass, review or fail."""
        found: Verdict = self.report["verdict"]
        return found

    def metric(self, name: str) -> Amount:
        """Return the amount of a metric; not measured where the report has none."""
        return next((metric.amount for metric in self.metrics if metric.id == name), NOT_MEASURED)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the JSON: the same data, the same bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ReportData:
        """Return what `to_dict` was called on.

        Raises
        ------
        InputError
            If a key is missing, unknown or of the wrong form, or `schema_version` is not this release's; the message
            names the key.
        """
        from cfk_plugin.report.parsing import parse

        return parse(content)

    @classmethod
    def from_json(cls, text: str) -> ReportData:
        """Return what `to_json` was called on; errors as for `from_dict`."""
        from cfk_plugin.report.parsing import parse_json

        return parse_json(text)
