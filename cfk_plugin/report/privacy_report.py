"""The privacy report of logged runs: computed, judged, disclosed and worded, in all its formats."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.errors import InputError, check_place, require, whole_file
from cfk_plugin.records.search import ids_of
from cfk_plugin.report import delivery, reading, render, runs, statements
from cfk_plugin.report.checks import JudgedCase, Line, judged, verdict
from cfk_plugin.report.compose import compose
from cfk_plugin.report.data import (
    LEAST,
    Amount,
    CertificateLine,
    CheckResult,
    Edition,
    Group,
    Metric,
    ReleaseCounts,
    ReportData,
    ReportHead,
    RunLine,
    ShownRelease,
    Verdict,
)
from cfk_plugin.report.disclosure import (
    HIDDEN,
    DisclosureControl,
    Kind,
    as_supported,
    in_steps,
    kind_of,
    shown_attack,
)
from cfk_plugin.report.figures import LATENCIES, NCP_OF, distributions, figures, finite, groups
from cfk_plugin.report.first_page import first_page
from cfk_plugin.report.inputs import Asked, HumanInputs, open_questions, thresholds
from cfk_plugin.report.runs import Evidence, Pooled

if TYPE_CHECKING:
    from cfk_plugin.hookspecs import Progress
    from cfk_plugin.records.period import Moment


SUFFIXES = (".html", ".json", ".md")
"""Formats of `PrivacyReport.save`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivacyReport:
    """What was released and at what risk, from logged runs alone.

    Made by `of_runs` or `of_experiment`; every format is a pure function of `data`.

    Attributes
    ----------
    data : ReportData
        What the report says. In the external edition class sizes are bands and no run is named.
    run_ids : tuple of str
        The runs that it was made from, oldest first; empty for a report that was read from its
        JSON.
    tracking_uri : str, optional
        Where the runs are.

    Examples
    --------
    >>> report = PrivacyReport.of_experiment("loans", since="2026-10-01")  # doctest: +SKIP
    >>> report.save("report.html")  # doctest: +SKIP
    """

    data: ReportData
    run_ids: tuple[str, ...] = ()
    tracking_uri: str | None = None

    @classmethod
    def of_runs(
        cls,
        run_ids: Sequence[str] | str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        edition: Edition = "internal",
        preset: str | None = None,
        inputs: HumanInputs | str | Path | None = None,
        previous: PrivacyReport | str | Path | None = None,
        tracking_uri: str | None = None,
        progress: Progress | None = None,
    ) -> PrivacyReport:
        """Make the report of some runs.

        Parameters
        ----------
        run_ids : sequence of str, or str
        since, until : datetime, date or str, optional
            The period; a day, as in ``until="2026-10-31"``, is included as a whole.
        edition : {"internal", "external"}
            Exact, for internal use; or banded, to give away.
        preset : str, optional
            Thresholds with a source. Default: what the policies of the runs ask for.
        inputs : HumanInputs or path, optional
            People's answers; without them every question is open, and the verdict is at
            best review.
        previous : PrivacyReport or path, optional
            An earlier report of the same edition, to say what changed; a path is of its JSON.
        tracking_uri : str, optional
            Default: MLflow's own setting.
        progress : callable, optional
            Called with (done, total) runs.

        Returns
        -------
        PrivacyReport
            The same runs and settings give the same report, byte by byte.

        Raises
        ------
        InputError
            If a run, the period or a setting is invalid.
        TrackingError
            If the store does not answer, or is damaged.
        """
        wanted = ids_of(run_ids)
        settings = _Settings(
            since, until, edition, preset, inputs, previous, tracking_uri, progress
        )
        return cls(
            *settings.report(reading.read_runs, wanted, [("--run", each) for each in wanted]),
            tracking_uri,
        )

    @classmethod
    def of_experiment(
        cls,
        name: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        edition: Edition = "internal",
        preset: str | None = None,
        inputs: HumanInputs | str | Path | None = None,
        previous: PrivacyReport | str | Path | None = None,
        tracking_uri: str | None = None,
        progress: Progress | None = None,
    ) -> PrivacyReport:
        """Make the report of all runs of an experiment, by its name or, with ``id:`` before it, its
        id.

        Parameters, result and errors are those of `of_runs`.
        """
        settings = _Settings(
            since, until, edition, preset, inputs, previous, tracking_uri, progress
        )
        return cls(
            *settings.report(reading.read_experiment, name, [("--experiment", name)]), tracking_uri
        )

    @classmethod
    def read(cls, source: str | Path, *, tracking_uri: str | None = None) -> PrivacyReport:
        """Read a report back: from its JSON, or from the id of a run that it was logged to.

        Raises
        ------
        InputError
            If neither exists, or it is not a report that this release reads.
        TrackingError
            If MLflow cannot be read.
        """
        if not isinstance(source, str | Path):
            raise InputError(
                f"source must be a path or the id of a run, got {type(source).__name__}"
            )
        path = Path(source)
        if isinstance(source, Path) or path.is_file() or path.suffix.lower() == ".json":
            return cls(_read_json(path))
        return cls(delivery.logged_report(source, tracking_uri=tracking_uri), (), tracking_uri)

    @property
    def verdict(self) -> Verdict:
        """The verdict: pass, review or fail."""
        return self.data.verdict

    def to_json(self) -> str:
        """Return the JSON; its schema is ``cfk_plugin/schemas/report-1.schema.json``."""
        return self.data.to_json()

    def to_html(
        self, *, print_edition: bool = False, address: str | None = None, docs: str | None = None
    ) -> str:
        """Return one HTML file that loads nothing and has no script: a page for decisions, checks,
        and annexes.

        Parameters
        ----------
        print_edition : bool
            For printing: nothing is folded.
        address : str, optional
            Address of the tracking server, for links from run ids. Without it they are text.
        docs : str, optional
            Address of the page of definitions, for links from names of figures. Without it some
            link to an annex.
        """
        return render.render_html(self._document(address, docs), print_edition=print_edition)

    def to_markdown(self) -> str:
        """Return the whole report as Markdown."""
        return render.render_markdown(self._document())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        print_edition: bool = False,
        address: str | None = None,
        docs: str | None = None,
    ) -> None:
        """Write the report in the format of the name's ending: .html, .json or .md.

        An existing file is replaced when the new one is complete.

        Parameters
        ----------
        path : path
        print_edition, address, docs
            For HTML, as in `to_html`.

        Raises
        ------
        InputError
            If the path cannot be written.
        """
        place = Path(path)
        check_place(place, SUFFIXES)
        makers: dict[str, Callable[[], str]] = {
            ".html": lambda: self.to_html(print_edition=print_edition, address=address, docs=docs),
            ".json": self.to_json,
            ".md": self.to_markdown,
        }
        # line ends are not translated: the same report has the same bytes
        with whole_file(place) as draft:
            draft.write_bytes(makers[place.suffix.lower()]().encode("utf-8"))

    def log(self) -> str:
        """Log the report to MLflow, as HTML, JSON and Markdown, and return the id of the run that
        holds it.

        That is the run that it was made from or, if there are several, a new one in their
        experiment.

        Raises
        ------
        InputError
            If the report was not made from runs.
        TrackingError
            If MLflow does not take it.
        """
        texts = {"html": self.to_html(), "json": self.to_json(), "md": self.to_markdown()}
        return delivery.log_report(self.data, texts, self.run_ids, tracking_uri=self.tracking_uri)

    def __repr__(self) -> str:
        statuses = [check.status for check in self.data.checks]
        counts = [
            f"{statuses.count(status)} {text}" for status, text in render.STATUS_TEXTS.items()
        ]
        return f"<PrivacyReport: {self.verdict}; {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        """Return the first page in short, and the checks; the whole report is `to_html`."""
        return render.render_cell(self.data, first_page(self.data))

    def _document(self, address: str | None = None, docs: str | None = None) -> render.Document:
        for what, where in (("the tracking server", address), ("the definitions", docs)):
            if where is not None and not where.startswith(("http://", "https://")):
                raise InputError(
                    f"the address of {what} must begin with http:// or https://, got {where!r}"
                )
        return compose(self.data, address=address, docs=docs)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The arguments of a report besides its runs; see `PrivacyReport.of_runs`."""

    since: Moment | None
    until: Moment | None
    edition: Edition
    preset: str | None
    inputs: HumanInputs | str | Path | None
    previous: PrivacyReport | str | Path | None
    tracking_uri: str | None
    progress: Progress | None

    def report(
        self, read: Callable[..., Evidence], what: object, source: Sequence[tuple[str, str]]
    ) -> tuple[ReportData, tuple[str, ...]]:
        """Check everything, then read the runs; return the report as read back from its JSON, and
        the runs' ids.
        """
        if self.edition not in ("internal", "external"):
            raise InputError(f"edition must be internal or external, got {self.edition!r}")
        given, earlier = self.inputs, self.previous
        inputs = (
            HumanInputs.read(given) if isinstance(given, str | Path) else given or HumanInputs()
        )
        require("inputs", inputs, HumanInputs, "or give the path of its YAML")
        asked = thresholds(self.preset, inputs)
        previous = (
            _read_json(Path(earlier))
            if isinstance(earlier, str | Path)
            else earlier.data
            if earlier
            else None
        )
        if previous is not None and previous.report["edition"] != self.edition:
            raise InputError(
                f"the earlier report is the {previous.report['edition']} edition and this one is to"
                f" be the {self.edition}; give one of the same edition"
            )
        evidence = read(
            what,
            tracking_uri=self.tracking_uri,
            since=self.since,
            until=self.until,
            progress=self.progress,
        )
        if not evidence.runs:
            raise InputError("a report needs at least one run with explanations or audits")
        data = _computed(evidence, inputs, asked, self.edition, self.preset, self.command(source))
        if previous is not None:
            data = replace(data, changes=delivery.compare(previous, data))
        # A report's id follows from its content: the same evidence gives the same id.
        digest = hashlib.sha256(data.to_json().encode()).hexdigest()[:16]
        data = replace(data, report={**data.report, "id": digest})
        # Renderings depend on the order of keys and the type of sequences, so there is only one
        # form: the JSON's.
        return ReportData.from_json(data.to_json()), tuple(run.run_id for run in evidence.runs)

    def command(self, source: Sequence[tuple[str, str]]) -> str:
        """Return the command that makes the report again, without paths and addresses, which do not
        change it.
        """
        given = {
            "--since": self.since,
            "--until": self.until,
            "--edition": self.edition,
            "--preset": self.preset,
            "--inputs": _file(self.inputs, "inputs.yaml"),
            "--previous": _file(self.previous, "previous.json"),
        }
        options = [(name, str(value)) for name, value in given.items() if value is not None]
        return shlex.join(
            ["cfk", "report", *(word for option in (*source, *options) for word in option)]
        )


def _file(given: object, name: str) -> str | None:
    return given if given is None else Path(given).name if isinstance(given, str | Path) else name


def _read_json(path: Path) -> ReportData:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__})") from None
    try:
        return ReportData.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


# --- from evidence to report: compute, judge, hide, word ---

_MOST_CERTIFICATES = 50


def _computed(
    evidence: Evidence,
    inputs: HumanInputs,
    asked: Mapping[str, Asked],
    edition: Edition,
    preset: str | None,
    command: str,
) -> ReportData:
    """Compute, judge, and collect what may be shown; the same evidence gives the same data."""
    least = asked["k"].value
    pooled = Pooled.of(evidence, None if least is None else int(least))
    case = JudgedCase(
        evidence=evidence,
        pooled=pooled,
        figures=figures(evidence, pooled),
        inputs=inputs,
        thresholds=asked,
        groups=groups(pooled),
        audited=runs.audited(evidence),
        n_open_questions=len(open_questions(inputs)),
    )
    control = DisclosureControl(edition, pooled.k)
    # first, as it decides whether the number of releases may show anywhere
    released = _releases(case, control)
    checks = tuple(_check(line, control) for line in judged(case))
    dp = statements.dp_statement(evidence)
    said = statements.circumstances(evidence, pooled, dp)
    metrics = _metrics(case.figures, released, control)
    ran = tuple(shown_attack(attack, control) for attack in case.attacks)
    floor = case.asked("pureness", "min_pureness").value
    return ReportData(
        report=_head(
            case,
            control,
            verdict(check.status for check in checks),
            statements.not_covered(said),
            command,
        ),
        system=case.inputs.system(),
        population=statements.population_summary(evidence, case.figures, control),
        attributes=statements.columns(evidence, control),
        policy=statements.policy_summary(pooled, case.thresholds, control, said.guarantees, preset),
        releases=released,
        checks=checks,
        metrics=metrics,
        distributions=distributions(evidence, pooled, case.audited, control, floor),
        groups=tuple(_group(group, control) for group in case.groups),
        attacks=ran,
        criteria=statements.criteria(
            {check.id: check.status for check in checks},
            said.raw_private,
            regions=len(pooled.regions) > 0 or not said.prototypes,
            prototypes=said.prototypes,
        ),
        dp=dp,
        limits=statements.limits(said),
        open_questions=open_questions(case.inputs),
        sign_off=case.inputs.signatures(),
        controls=statements.controls(),
        environment=statements.environment_of(evidence),
        runs=_runs(evidence, pooled, control),
        certificates=_certificates(pooled, control),
        changes=None,
        picture=_picture(pooled, control),
        hidden_cells=tuple(sorted(set(control.hidden))),
        definitions=statements.definitions_of(checks, metrics, ran),
    )


def _head(
    case: JudgedCase,
    control: DisclosureControl,
    found: Verdict,
    uncovered: tuple[str, ...],
    command: str,
) -> ReportHead:
    evidence, pooled, inputs = case.evidence, case.pooled, case.inputs
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows and len(pooled) else None
    first, last = (
        (None, None)
        if times is None
        else (statements.day(times.min()), statements.day(times.max()))
    )
    latest = statements.of_milliseconds(max(run.started for run in evidence.runs))
    # "Default" says nothing
    names = sorted({run.experiment for run in evidence.runs} - {None, "", "Default"})
    return {
        "id": "",
        "edition": control.edition,
        "title": (
            f"Privacy report: {inputs.answers.get('system') or ', '.join(names) or 'explanations'}"
        ),
        "verdict": found,
        "period": {
            "first": control.moment(first),
            "last": control.moment(last),
            "since": control.moment(statements.of_milliseconds(evidence.since)),
            "until": control.moment(statements.of_milliseconds(evidence.until)),
        },
        "as_of": control.moment(max(filter(None, (last, latest)), default=None)),
        "reason": inputs.reason,
        "command": "" if control.external else command,
        "not_covered": uncovered,
    }


def _releases(case: JudgedCase, control: DisclosureControl) -> ReleaseCounts:
    """Describe what was asked for, and what became of it."""
    # These add up to all requests: with a small one, a second one is hidden.
    parts = {
        name: case.figure(name).value for name in ("exact", "generalised", "prototypes", "withheld")
    }
    counts = {name: int(value) for name, value in parts.items() if value is not None}
    shown = dict.fromkeys(parts, Amount()) | control.counts(counts, "releases", people=False)
    asked = control.total(counts, "releases.asked")
    complement = shown["withheld"].band is not None  # of all requests
    # else what was withheld and released would tell the sum
    hides = complement or asked.band is not None
    untracked = control.amount(case.figure("untracked"), "requests", "releases.untracked")
    control.hides_released = control.external and hides
    reasons = (
        case.pooled.withheld["reason"].value_counts()
        if len(case.pooled.withheld)
        else pd.Series(dtype=int)
    )
    counted = {
        str(name): int(count)
        for name, count in sorted(reasons.items(), key=lambda item: str(item[0]))
        if count
    }
    latency = (
        {}
        if control.external
        else {name.removeprefix("latency_"): case.figure(name) for name in LATENCIES}
    )
    return {
        "exact": shown["exact"],
        "generalised": shown["generalised"],
        "prototypes": shown["prototypes"],
        "withheld": shown["withheld"],
        "asked": asked,
        "released": (
            Amount(band=HIDDEN)
            if hides
            else control.amount(case.figure("released"), "requests", "releases.released")
        ),
        "untracked": untracked,
        "reasons": control.counts(
            counted, "releases.reasons", people=False, beside_sum=not complement
        ),
        "latency": {
            name: amount if amount.measured else Amount() for name, amount in latency.items()
        },
    }


def _metrics(
    found: Mapping[str, Metric], released: Mapping[str, Any], control: DisclosureControl
) -> tuple[Metric, ...]:
    """Return the figures as they may be shown; counts as in `released`, where one may hide
    another.
    """
    return tuple(
        replace(
            metric,
            amount=(
                released[name]
                if name in released
                else control.amount(metric.amount, kind_of(name), f"metrics.{name}")
            ),
        )
        for name, metric in found.items()
        if name not in LATENCIES  # these are in `released`
    )


def _check(line: Line, control: DisclosureControl) -> CheckResult:
    measured = control.amount(line.check.measured, line.kind, f"checks.{line.check.id}")
    return replace(
        line.check, measured=measured, evidence=() if control.external else line.check.evidence
    )


def _group(group: Group, control: DisclosureControl) -> Group:
    """Hide in the external edition what reveals class sizes or single explanations; small groups
    are already pooled.
    """
    if not control.external:
        return group
    place, n = f"groups.{group.attribute}.{group.group}.{group.metric}", int(group.n.value or 0)
    kind = _KIND_OF_GROUP.get(group.metric, "mean")
    exact = (
        Amount(value=of.value, n=n) if of.measured else Amount() for of in (group.mean, group.rest)
    )
    mean, rest = (control.amount(amount, kind, place) for amount in exact)
    gap = replace(as_supported(replace(group.gap, n=n)), n=None)
    if mean.band or rest.band:
        gap = Amount(band=HIDDEN)
    return replace(group, n=Amount(value=in_steps(n)), mean=mean, rest=rest, gap=gap)


_KIND_OF_GROUP: Mapping[str, Kind] = {"k": "class_size", "withheld": "share_of_requests"}


def _runs(evidence: Evidence, pooled: Pooled, control: DisclosureControl) -> tuple[RunLine, ...]:
    """List the runs; in the external edition none."""
    if control.external:
        return ()
    asked = {run.run_id: int((pooled.rows["run"] == i).sum()) for i, run in enumerate(pooled.runs)}
    return tuple(
        {
            "run": run.run_id,
            "name": run.name,
            "experiment": run.experiment,
            "started": statements.of_milliseconds(run.started),
            "asked": asked.get(run.run_id, 0),
            "verdict": run.tags.get("cfk.verdict", ""),
            "audits": tuple(str(audit.get("kind", "")) for audit in run.audits),
        }
        for run in evidence.runs
    )


def _certificates(pooled: Pooled, control: DisclosureControl) -> tuple[CertificateLine, ...]:
    """List the releases with the fewest people and the lowest pureness; in the external edition
    none.
    """
    if control.external or not len(pooled.regions):
        return ()
    order = ["k", "pureness_low", "pureness"]
    worst = pooled.regions.sort_values(order, kind="stable").head(_MOST_CERTIFICATES)
    return tuple(
        {
            "id": name,
            "k": Amount(value=int(row["k"])),
            "ncp": Amount(value=finite(row["ncp"])),
            "pureness": _with_interval(row),
            "optimality": _optimality(row),
            "status": "released",
        }
        for name, (_, row) in zip(pooled.evidence(worst, len(worst)), worst.iterrows(), strict=True)
    )


def _picture(pooled: Pooled, control: DisclosureControl) -> ShownRelease | None:
    """Return the release of median information loss: only widths and people; externally in steps of
    5 %.
    """
    names = [str(name) for name in pooled.regions if str(name).startswith(NCP_OF)]
    known = pooled.regions.dropna(subset=["ncp", *names]) if names else pooled.regions.head(0)
    if len(known) < (LEAST if control.external else 1):
        return None
    middle = known.sort_values(["ncp", "k"], kind="stable").iloc[(len(known) - 1) // 2]
    shares = {name.removeprefix(NCP_OF): float(middle[name]) for name in names}
    if control.external:
        shares = {name: round(20 * share) / 20 for name, share in shares.items()}
    return {
        "attributes": tuple(
            {"attribute": name, "share": Amount(value=share)} for name, share in shares.items()
        ),
        "k": control.amount(Amount(value=int(middle["k"])), "class_size", "picture.k"),
    }


def _with_interval(row: pd.Series) -> Amount:
    value, low, high = (finite(row[name]) for name in ("pureness", "pureness_low", "pureness_high"))
    return Amount(value=value) if row.get("exact") else Amount(value=value, low=low, high=high)


def _optimality(row: pd.Series) -> str:
    if row.get("optimal"):
        return "proved"
    gap = row.get("gap")
    return "heuristic" if gap is None or pd.isna(gap) else f"gap at most {gap:.3g}"
