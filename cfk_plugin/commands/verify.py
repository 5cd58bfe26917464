"""`cfk verify`: what can be known of a file of released explanations, and what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from cfk_plugin.audit.recount import Judge, Rerun, recount
from cfk_plugin.audit.released_file import (
    Finding,
    Released,
    inconsistent,
    policy_of,
    read,
    require_version,
    unfit,
    wrong_columns,
    wrong_prototypes,
)
from cfk_plugin.commands.files import load_model, parse_json, read_bytes, read_policy, read_schema, read_table
from cfk_plugin.commands.inputs import wanted
from cfk_plugin.data.model import OPPOSITE
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import to_text
from cfk_plugin.errors import InputError, PolicyError, WrongSignatureError
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.release import signing

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.release.results import Policy

_EXIT = {"pass": 0, "fail": 1, "review": 3}
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk verify --help``."""

    released: Path
    train: Path | None = None
    schema: Path | None = None
    key: Path | None = None
    signature: Path | None = None
    policy: Path | None = None
    k: int | None = None
    model: str | None = None
    desired: str = "opposite"
    rerun: bool = False


@dataclass(slots=True)
class Report:
    """What was found, and what was not looked at.

    Attributes
    ----------
    findings : list of Finding
    unchecked : list of str
        What this run could not know.
    counts : list of int
        People inside each region that was counted.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Return ``fail``, ``review`` (a person has to look) or ``pass``."""
        if any(finding.fails for finding in self.findings):
            return "fail"
        return "review" if self.findings else "pass"


def run(job: Job, console: Console) -> int:
    """Verify a file and say what was found; return the exit code."""
    _check(job)
    try:
        content = read_bytes(job.released) if job.key is None else signing.verify(job.released, job.key, job.signature)
    except WrongSignatureError as error:
        console.print(f"[bold]fail[/]: {escape(str(error))}", highlight=False)
        return 1
    said = parse_json(content, job.released)
    try:
        require_version(said)
    except InputError as error:
        raise InputError(f"{job.released}: {error}") from None
    population = None
    if job.train is not None and job.schema is not None:
        rows = read_table(job.train)
        population = Population.from_frame(rows, read_schema(job.schema, rows))
    report = examine(said, population, job)
    _show(report, said, population, console)
    return _EXIT[report.verdict]


def examine(content: Mapping[str, Any], population: Population | None, job: Job) -> Report:
    """Check form, consistency, counts and, where a model is given, what it says; stop where nothing can be read."""
    report = Report()
    report.findings = unfit(content, () if population is None else population.schema.features)
    if report.findings:
        report.unchecked.append("anything else: the form has to be right first")
        return report
    policy = policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    report.findings += inconsistent(content, policy)
    report.unchecked += _not_asked(job, policy)
    if job.policy is not None and read_policy(job.policy, {}) != policy:
        report.findings.append(Finding("policy", "is not the one that was given"))
    if all(entry["status"] == "suppressed" for entry in content["explanations"]):
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    if population is None:
        return report
    report.findings += wrong_columns(content, population)
    if not isinstance(policy, PrivacyPolicy):
        report.findings += wrong_prototypes(content, population)
        no_count = "hold prototypes, which no people can be counted for: epsilon is of the way they were made"
        report.findings.append(Finding("explanations", f"{no_count}; see cfk audit epsilon", fails=False))
        return report
    report.findings += _of_regions(content, population, policy, job, report)
    return report


def _of_regions(
    content: Mapping[str, Any], population: Population, policy: PrivacyPolicy, job: Job, report: Report
) -> Iterator[Finding]:
    found, wrong = read(content, population, policy)
    yield from wrong
    judge = None
    if job.model is not None:
        model, features = load_model(job.model), population.frame[list(population.schema.features)]
        judge = Judge(population, model, wanted(job.desired, model, features))
    rerun = Rerun.of(judge, policy) if judge is not None and job.rerun else None
    if rerun is not None and not rerun.applies:
        report.unchecked.append("that a search finds these regions again: its counterfactuals are not in the file")
    known, labels = (
        {*BUILT_IN, *load_plugins().protectors(), "reciprocal", "catalogue"},
        _labels(population, judge, job),
    )
    for each in found:
        report.counts.append(population.people(each.rows))
        yield from recount(each, population, policy, job.k)
        if each.certificate["method"] not in known:
            yield Finding(each.where, "certificate.method is the name of no method or plugin that is installed here")
        if population.has_key and each.certificate["population"] != population.fingerprint:
            yield Finding(each.where, "is about another population, or was made with another key", fails=False)
        yield from _wrong_outcome(each, labels, judge)
        if judge is not None and (grid := judge.grid(each)).size:
            yield from judge.wrong_pureness(each, grid)
        elif judge is not None:
            report.unchecked.append(f"pureness of {each.where}: the table has no number in a released bin")
        if rerun is not None:
            yield from rerun.wrong(each)
    if not population.has_key:
        report.unchecked.append("that this is the population of the certificates (set CFK_KEY)")


def _labels(population: Population, judge: Judge | None, job: Job) -> set[str]:
    """Return the outcomes that there are, as text: of the table's target, of the model, and the one that was named."""
    target, found = population.schema.target, population.frame
    labels = [] if target is None or target not in found else found[target].dropna().unique().tolist()
    labels += [] if judge is None else judge.labels(found).tolist()
    return {to_text(label) for label in labels} | ({job.desired} - {OPPOSITE})


def _wrong_outcome(found: Released, labels: set[str], judge: Judge | None) -> Iterator[Finding]:
    """Yield an outcome that is none, as a text or a number could be anything; and one that is not named."""
    outcome = found.entry["outcome"]
    if outcome is None:
        yield Finding(found.where, "does not name its outcome: a function that is not in the file decided", fails=False)
        return
    label = outcome.get("label", outcome.get("not", False))
    if isinstance(label, bool) and ("low" not in outcome or judge is not None):
        return
    if "low" in outcome or not labels:
        yield Finding(found.where, "names an outcome that nothing tells; give --desired or --model", fails=False)
    elif to_text(label) not in labels:
        yield Finding(found.where, "names an outcome that is none")


def _check(job: Job) -> None:
    if job.k is not None and job.k < 2:
        raise PolicyError(f"k must be a whole number >= 2, got {job.k}")
    if (job.train is None) != (job.schema is None):
        raise InputError("give the training rows and --schema together")
    if job.train is None and job.key is None:
        raise InputError("give the training rows and --schema, or --key to check the signature alone")
    if job.train is None and (job.model is not None or job.k is not None):
        raise InputError("--model and --k need the training rows and --schema")
    if job.signature is not None and job.key is None:
        raise InputError("--signature needs --key, the public key of whoever signed")
    if job.rerun and job.model is None:
        raise InputError("--rerun needs --model, and --desired as it was for the release")


def _not_asked(job: Job, policy: Policy) -> Iterator[str]:
    """Yield what was not asked for, with the option that does."""
    if job.key is None:
        yield "who wrote the file, and changes that fit the rest of it (--key)"
    if job.policy is None:
        yield "that its policy is the one that was agreed on (--policy)"
    if job.train is None:
        yield "people, information loss and values (give the training rows and --schema)"
    if not isinstance(policy, PrivacyPolicy):
        return
    if job.model is None:
        yield "pureness (--model)"
    if not job.rerun:
        yield "that regions are those of the guarantee (--rerun)"
    if policy.guarantee == "nominal":
        yield "optimal and gap, which are the method's own claim"
    if policy.guarantee != "catalogue" or not job.rerun:
        yield "that private values are those of the counterfactuals, which are not in the file"
    yield "why explanations were withheld"


def _show(report: Report, content: Mapping[str, Any], population: Population | None, console: Console) -> None:
    if report.findings:
        table = Table("where", "problem")
        for finding in report.findings[:_SHOWN]:
            table.add_row(escape(finding.where), escape(finding.problem))
        console.print(table)
        if len(report.findings) > _SHOWN:
            console.print(f"... and {len(report.findings) - _SHOWN} more", highlight=False)
    withheld = sum(isinstance(e, dict) and e.get("status") == "suppressed" for e in content["explanations"])
    said = [f"{len(content['explanations']) - withheld} released, {withheld} withheld"]
    if population is not None:
        said.append(f"{population.n_people} people in the table")
    if report.counts:
        said.append(f"at least {min(report.counts)} in a region")
    console.print(f"[bold]{report.verdict}[/]: {', '.join(said)}", highlight=False)
    for what in report.unchecked:
        console.print(f"not checked: {what}", highlight=False)
