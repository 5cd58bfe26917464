"""The report as data: what is in the JSON, and all that a rendering may look at."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number as the report may show it.

    Attributes
    ----------
    value : float or int, optional
        None where it was not measured, and where only a band is shown.
    low, high : float, optional
        Ends of its interval.
    n : int, optional
        What it is over, where that may be shown.
    band : str, optional
        What is shown in its place, such as ``1–10``.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    band: str | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or self.band is not None


NOT_MEASURED = Amount()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What one attack reached; see `cfk_plugin.audit.AuditResult`.

    Attributes
    ----------
    id : str
        Name of the attack.
    family : str
        ``linkage``, ``membership``, ``extraction``, ``attribute_inference`` or ``epsilon``.
    scenario : str
        What the attacker knows and does, in one sentence.
    main, baseline, control : Amount
    figures : mapping of str to Amount
        The attack's own numbers.
    worked : bool
    covers : bool
        Whether it was run on the policy and population of all explanations of the report.
    run : str
        Id of the run that holds it; empty in the external edition.
    subject : str
        Who or what was attacked, where the audit says so: an explainer, with or without protection.
    concerns : bool
        Whether its policy is that of any explanation of the report. An explainer without protection has none.
    judged : bool
        Whether a check judges it. The same attack on something else is there for comparison.
    """

    id: str
    family: str
    scenario: str
    main: Amount
    baseline: Amount
    control: Amount
    figures: Mapping[str, Amount] = field(default_factory=dict)
    worked: bool = False
    covers: bool = True
    run: str = ""
    subject: str = ""
    concerns: bool = True
    judged: bool = True


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
        return parse(content)

    @classmethod
    def from_json(cls, text: str) -> ReportData:
        """Return what `to_json` was called on; errors as for `from_dict`."""
        return parse_json(text)


_HEAD = ("id", "edition", "title", "verdict", "period", "as_of", "reason", "command", "not_covered")
_AMOUNT = frozenset(field.name for field in fields(Amount))
_PLAIN: Mapping[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def parse_json(text: str) -> ReportData:
    """Read the JSON of a report; see `ReportData.from_json`."""
    where = ""
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
    except RecursionError:
        where = "too deeply nested"
    if where:
        raise InputError(f"the report is not valid JSON ({where})")
    return parse(content)


def parse(content: Any) -> ReportData:
    """Read a report from JSON-ready values; see `ReportData.from_dict`."""
    if not isinstance(content, Mapping):
        raise InputError("the report is no JSON object; give the JSON that a report was written as")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        found = version if isinstance(version, int) else "none"
        raise InputError(
            f"the report has schema_version {found}, and this release reads {SCHEMA_VERSION}; "
            "make it again, or read it with the release that wrote it"
        )
    data: ReportData = _object(ReportData, content, "")
    for name in _HEAD:
        if name not in data.report:
            _missing(f"report.{name}")
    _value(Edition, data.report["edition"], "report.edition")
    _value(Verdict, data.report["verdict"], "report.verdict")
    return data


def _object(kind: Any, content: Any, where: str) -> Any:
    """Read one of the report's own classes: every key that it needs, and no other."""
    if not isinstance(content, Mapping):
        _wrong(where, "an object")
    hints, needed = _form(kind)
    for name in content:
        if name not in hints:
            raise InputError(f"the report has an unknown key {_path(where, str(name)[:60])}")
    for name in needed:
        if name not in content:
            _missing(_path(where, name))
    return kind(**{name: _value(hints[name], each, _path(where, name)) for name, each in content.items()})


@cache
def _form(kind: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the types of a class's fields, and the names of those that it cannot do without."""
    needed = (f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)
    return get_type_hints(kind), tuple(needed)


def _value(hint: Any, value: Any, where: str) -> Any:
    """Read a value of the annotated type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return _free(value)
    if is_dataclass(hint):
        return _object(hint, value, where)
    if origin is Literal:
        return value if value in args else _wrong(where, f"one of {', '.join(args)}")
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in args:
            return None
        return _value(next(arg for arg in args if arg is not types.NoneType), value, where)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            _wrong(where, "an object")
        return {str(name): _value(args[1], each, _path(where, str(name))) for name, each in value.items()}
    if origin in (Sequence, tuple):
        if not isinstance(value, list | tuple):
            _wrong(where, "a list")
        return tuple(_value(args[0], each, f"{where}[{place}]") for place, each in enumerate(value))
    return _plain(hint, value, where)


def _plain(hint: Any, value: Any, where: str) -> Any:
    allowed = (int, float) if hint is float else hint
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        _wrong(where, _PLAIN[hint])
    if isinstance(value, float) and not math.isfinite(value):
        _wrong(where, "a finite number")
    return value


def _free(value: Any) -> Any:
    """Read a value whose form is not fixed: what looks like an amount is one, at any depth."""
    if isinstance(value, Mapping):
        if value.keys() == _AMOUNT:
            return _object(Amount, value, "amount")
        return {str(name): _free(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_free(each) for each in value)
    return value


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _missing(where: str) -> NoReturn:
    raise InputError(f"the report has no {where}")


def _wrong(where: str, expected: str) -> NoReturn:
    raise InputError(f"{where} in the report must be {expected}")


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"the report holds {name}, which is no JSON")
