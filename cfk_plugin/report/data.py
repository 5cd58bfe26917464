"""The report as data: all that a rendering may look at."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import (
    Any,
    Literal,
    NoReturn,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from cfk_plugin.data.formats import faults
from cfk_plugin.errors import InputError


@cache
def load(name: str) -> Any:
    """Return the content of ``texts/<name>.toml``: shared by all callers, so not to be changed."""
    return tomllib.loads((files("cfk_plugin.report") / f"texts/{name}.toml").read_text("utf-8"))


SCHEMA_VERSION = 1
"""Version of the layout; the JSON Schema is ``schemas/report-1.schema.json``."""

Status = Literal["pass", "review", "fail", "not_measured"]
Verdict = Literal["pass", "review", "fail"]
Family = Literal["linkage", "membership", "extraction", "attribute_inference", "epsilon"]

OF_MODELS: tuple[Family, ...] = ("membership", "extraction", "attribute_inference")
"""Families whose audits attack an explainer as a whole: with a policy if it is protected, else
without one.
"""

Number = float | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number with its interval from `low` to `high`, over `n` cases.

    `value` is None if nothing was measured, or if a run logged only a `band` such as ``1–10``.
    """

    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    n: int | None = None
    band: str | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or self.band is not None


NOT_MEASURED = Amount()


LEAST = 11
"""Fewest people or explanations in a group that is shown on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of the report; `method` says briefly how the interval or figure was obtained."""

    id: str
    amount: Amount
    section: int
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of the verdict.

    `measured` is compared with `threshold`, which comes from `source`; the evidence is in
    `section`. `text` says what was found and what would change it. `step` is the id of the next
    step, such as ``audit``; it is empty if the check passes, or if only a judgement
    settles it. `evidence` are run ids, or ``run/step`` of single explanations.
    """

    id: str
    status: Status
    measured: Amount
    threshold: Amount
    source: str
    section: int
    text: str
    step: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Amounts per category, for a chart and its table: one per label in each series.

    ``class_sizes``, ``risk``, ``ncp_by_attribute``, ``pureness`` or ``roc``. `marks` are labeled
    lines in the chart, by name.
    """

    id: str
    section: int
    labels: tuple[str, ...]
    series: Mapping[str, tuple[Amount, ...]]
    marks: Mapping[str, Number] = field(default_factory=dict)
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
class Attack:
    """What one attack reached; see `cfk_plugin.audit.AuditResult`.

    `scenario` is what the attacker knows and does, `figures` are the attack's own numbers, `run`
    holds it, and `subject` is who or what was attacked, if the
    audit says so. `covers`: it was run on the policy and population of all explanations of the
    report. `concerns`: on the policy of any of them; an explainer without protection has none.
    `judged`: a check judges this result, and not the same attack on another subject.
    """

    id: str
    family: Family
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

    @property
    def rates(self) -> tuple[Amount, Amount, Amount]:
        """Its rate, and those it is compared with: main, baseline and control."""
        return self.main, self.baseline, self.control

    def figure(self, name: str) -> Number | None:
        """Return one of the attack's own numbers, if it has it."""
        return self.figures[name].value if name in self.figures else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """Something that only people can say, and nobody has said yet."""

    id: str
    question: str
    role: str
    section: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a figure or a check is: ``formula`` in one line, ``direction`` such as ``lower is
    better``.
    """

    name: str
    formula: str
    range: str
    direction: str
    source: str
    does_not_say: str


class ReportPeriod(TypedDict):
    """First and last explanation, and what was asked for: ISO 8601."""

    first: str | None
    last: str | None
    since: str | None
    until: str | None


class ReportHead(TypedDict):
    """Which report it is; `as_of` is the time of the latest evidence."""

    id: str
    title: str
    verdict: Verdict
    period: ReportPeriod
    as_of: str | None
    command: str
    not_covered: tuple[str, ...]


class PopulationSummary(TypedDict):
    """The population before protection; `populations` counts different ones."""

    people: Amount
    rows: Amount
    unique: Amount
    below_k: Amount
    subject_key: bool | None
    fingerprint: str | None
    k: int | None
    populations: int


class Column(TypedDict):
    """An attribute; `distinct` counts its values."""

    name: str
    role: str
    kind: str
    weight: Number | None
    distinct: Amount
    bounds_source: Literal["declared", "learned", "not needed"]


class ThresholdLine(TypedDict):
    """What a check compares with."""

    id: str
    value: Number
    source: str


class PolicyInForce(TypedDict):
    """A policy, and how many explanations were asked for under it."""

    sha256: str
    settings: dict[str, Any]
    first: str | None
    last: str | None
    asked: Amount


class Policies(TypedDict):
    """What was asked of protection, and by whom."""

    policies: tuple[PolicyInForce, ...]
    methods: tuple[str, ...]
    guarantees: tuple[str, ...]
    generators: tuple[str, ...]
    seed: tuple[str, ...]
    deviations: tuple[str, ...]
    thresholds: tuple[ThresholdLine, ...]
    techniques: tuple[str, ...]


class ReleaseCounts(TypedDict):
    """What became of all requests; `exact` regions are one combination of values, `latency` is in
    seconds.
    """

    exact: Amount
    generalised: Amount
    prototypes: Amount
    withheld: Amount
    asked: Amount
    released: Amount
    untracked: Amount
    reasons: dict[str, Amount]
    latency: dict[str, Amount]


class Criterion(TypedDict):
    """One of the three criteria of the Article 29 Working Party; `evidence` names checks."""

    criterion: str
    evidence: str
    status: Status
    text: str


class DpStatement(TypedDict):
    """What is guaranteed of prototypes, as their certificate states it."""

    guarantee: Literal["pure", "approximate", "none"]
    epsilon: Number
    delta: Number
    unit: str
    neighbours: str
    mechanism: str
    model_access: str
    model_epsilon: Number | None
    model_delta: Number | None
    seeded: bool
    inferred: tuple[str, ...]
    moved_towards_query: bool
    fit: str
    covers: str
    total: tuple[Number, ...] | None
    membership_bound: Number | None
    threat_models: dict[str, str]


class Environment(TypedDict):
    """Versions of the latest run that logged them."""

    packages: dict[str, str]
    plugins: tuple[str, ...]
    python: str | None
    model: str | None


class RunLine(TypedDict):
    """One run, and the kinds of its audits."""

    run: str
    name: str
    experiment: str
    started: str | None
    asked: int
    verdict: str
    audits: tuple[str, ...]


class CertificateLine(TypedDict):
    """One release."""

    id: str
    k: Amount
    ncp: Amount
    pureness: Amount
    optimality: str
    status: str


class Width(TypedDict):
    """The share of an attribute's range that an explanation gives."""

    attribute: str
    share: Amount


class ShownRelease(TypedDict):
    """One released explanation without any value: how much of each quasi-identifier's range, and
    how many people.
    """

    attributes: tuple[Width, ...]
    k: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report says."""

    report: ReportHead
    # people's answers, by the id of the question; None if nobody answered
    system: Mapping[str, str | None]
    population: PopulationSummary
    attributes: tuple[Column, ...]
    policy: Policies
    releases: ReleaseCounts
    checks: tuple[CheckResult, ...]
    metrics: tuple[Metric, ...]
    distributions: tuple[Distribution, ...]
    groups: tuple[Group, ...]
    attacks: tuple[Attack, ...]
    criteria: tuple[Criterion, ...]
    dp: DpStatement | None
    limits: tuple[str, ...]
    open_questions: tuple[OpenQuestion, ...]
    # by control: requires, section, status, verified, checked_on, source
    controls: tuple[dict[str, str], ...]
    environment: Environment
    runs: tuple[RunLine, ...]
    certificates: tuple[CertificateLine, ...]  # worst first
    definitions: Mapping[str, Definition]  # of every metric, check and figure in the report
    # the released region of median information loss; None where no region was released
    picture: ShownRelease | None
    schema_version: Literal[1] = 1

    @property
    def verdict(self) -> Verdict:
        """The verdict: pass, review or fail."""
        return self.report["verdict"]

    def metric(self, name: str) -> Amount:
        """Return the amount of a metric; not measured where the report has none."""
        return next((metric.amount for metric in self.metrics if metric.id == name), NOT_MEASURED)

    def distribution(self, name: str) -> Distribution | None:
        """Return a distribution by its id; None where the report has none."""
        return next((each for each in self.distributions if each.id == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the JSON: the same data, the same bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    def as_read(self) -> ReportData:
        """Return what a reader of the JSON gets: its order of keys and its types of sequences."""
        return _typed(ReportData, json.loads(self.to_json()))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ReportData:
        """Return the report that `to_dict` was called on.

        Raises `InputError`, which names the key, if one is missing, unknown or of the wrong form,
        or `schema_version` is not this release's.
        """
        if not isinstance(content, Mapping):
            raise InputError(
                "the report is no JSON object; give the JSON that a report was written as"
            )
        version = content.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            found = version if isinstance(version, int) else "none"
            raise InputError(
                f"the report has schema_version {found}, and this release reads {SCHEMA_VERSION}; "
                "make it again, or read it with the release that wrote it"
            )
        wrong = faults(content, f"report-{SCHEMA_VERSION}")
        if wrong:
            raise InputError(f"the report is damaged: {wrong[0]}")
        return _typed(cls, content)  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, text: str) -> ReportData:
        """Return the report that `to_json` was called on; errors as for `from_dict`."""
        try:
            content = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
        except RecursionError:
            where = "too deeply nested"
        else:
            return cls.from_dict(content)
        raise InputError(f"the report is not valid JSON ({where})")


def _typed(kind: Any, content: Any) -> Any:
    """Return content from JSON as the types of this module; the schema was checked before."""
    if NoneType in get_args(kind):
        if content is None:
            return None
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        return tuple(_typed(get_args(kind)[0], each) for each in content)
    if get_origin(kind) in (dict, Mapping):
        _, kind_of_values = get_args(kind)
        return {name: _typed(kind_of_values, value) for name, value in content.items()}
    if not (is_dataclass(kind) or is_typeddict(kind)):
        return content
    kinds = _types_of(kind)
    return kind(**{name: _typed(kinds.get(name), value) for name, value in content.items()})


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields; to evaluate them takes longer than to read a report."""
    return get_type_hints(kind)


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"the report holds {name}, which is no JSON")
