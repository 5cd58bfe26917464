"""The privacy report of logged runs."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.errors import InputError, check_place, whole_file
from cfk_plugin.report import page, reading, runs, statements
from cfk_plugin.report.amounts import STATUS_TEXTS
from cfk_plugin.report.checks import JudgedCase, judged, verdict
from cfk_plugin.report.data import (
    Amount,
    CertificateLine,
    ReleaseCounts,
    ReportData,
    ReportHead,
    RunLine,
    ShownRelease,
    Verdict,
)
from cfk_plugin.report.figures import LATENCIES, NCP_OF, distributions, figures, finite, groups
from cfk_plugin.report.first_page import first_page
from cfk_plugin.report.inputs import QUESTIONS, HumanInputs, open_questions, thresholds
from cfk_plugin.report.runs import Evidence, Pooled
from cfk_plugin.tracking.reading import ids_of
from cfk_plugin.tracking.run import client_of, tracking_errors, write

if TYPE_CHECKING:
    from cfk_plugin.hookspecs import Progress
    from cfk_plugin.report.period import Moment

    Inputs = Mapping[str, Any] | str | Path | None


SUFFIXES = (".html", ".json")
"""Formats of `PrivacyReport.save`."""

_SOURCES = "cfk.report"
"""Tag of a run that has a report of several runs: their number."""
_VERDICT = "cfk.report.verdict"
"""Tag of a run that has a report."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivacyReport:
    """What was released and at what risk, from logged runs alone.

    It is for the data holder: figures are exact, and runs are named. Made by `of_runs` or
    `of_experiment`; every format is a pure function of `data`.

    Attributes
    ----------
    data : ReportData
        What the report says.
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
        inputs: Inputs = None,
        tracking_uri: str | None = None,
        progress: Progress | None = None,
    ) -> PrivacyReport:
        """Make the report of some runs.

        Parameters
        ----------
        run_ids : sequence of str, or str
        since, until : datetime, date or str, optional
            The period; a day, as in ``until="2026-10-31"``, is included as a whole.
        inputs : mapping or path of a JSON file, optional
            What only people can say: ``answers``, ``accepted_risks`` and ``thresholds``. Without
            answers every question is open, and the verdict is at best review.
        tracking_uri : str, optional
            Default: MLflow's own setting.
        progress : callable, optional
            Called with (done, total) runs.

        Returns
        -------
        PrivacyReport
            The same runs and inputs give the same report, byte by byte.

        Raises
        ------
        InputError
            If a run, the period or an input is invalid.
        TrackingError
            If the store does not answer, or is damaged.
        """
        ids = ids_of(run_ids)
        human_inputs = HumanInputs.read(inputs)
        evidence = reading.read_runs(
            ids, tracking_uri=tracking_uri, since=since, until=until, progress=progress
        )
        source = [word for run_id in ids for word in ("--run", run_id)]
        command = _command(source, since, until, inputs)
        return cls._of_evidence(evidence, human_inputs, command, tracking_uri)

    @classmethod
    def of_experiment(
        cls,
        name: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        inputs: Inputs = None,
        tracking_uri: str | None = None,
        progress: Progress | None = None,
    ) -> PrivacyReport:
        """Make the report of all runs of an experiment.

        `name` is its name or, with ``id:`` before it, its id. The other parameters, the result and
        errors are those of `of_runs`.
        """
        human_inputs = HumanInputs.read(inputs)
        evidence = reading.read_experiment(
            name, tracking_uri=tracking_uri, since=since, until=until, progress=progress
        )
        command = _command(["--experiment", name], since, until, inputs)
        return cls._of_evidence(evidence, human_inputs, command, tracking_uri)

    @classmethod
    def _of_evidence(
        cls, evidence: Evidence, inputs: HumanInputs, command: str, tracking_uri: str | None
    ) -> PrivacyReport:
        data = _computed(evidence, inputs, command)
        # A report's id follows from its content: the same evidence gives the same id.
        digest = hashlib.sha256(data.to_json().encode()).hexdigest()[:16]
        data = replace(data, report={**data.report, "id": digest})
        run_ids = tuple(run.run_id for run in evidence.runs)
        # The page depends on the order of keys and the type of sequences.
        return cls(data.as_read(), run_ids, tracking_uri)

    @classmethod
    def read(cls, path: str | Path) -> PrivacyReport:
        """Read a report back from its JSON.

        Raises
        ------
        InputError
            If the file cannot be read, or is not a report that this release reads.
        """
        if not isinstance(path, str | Path):
            raise InputError(f"path must be a str or a Path, got {type(path).__name__}")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read ({type(error).__name__})") from None
        try:
            return cls(ReportData.from_json(text))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @property
    def verdict(self) -> Verdict:
        """The verdict: pass, review or fail."""
        return self.data.verdict

    def to_json(self) -> str:
        """Return the JSON; its schema is ``cfk_plugin/schemas/report-1.schema.json``."""
        return self.data.to_json()

    def to_html(self) -> str:
        """Return one HTML file that loads nothing and has no script; printed, nothing is folded."""
        return page.render_html(self.data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report in the format of the name's ending: .html or .json.

        An existing file is replaced when the new one is complete.

        Parameters
        ----------
        path : path

        Raises
        ------
        InputError
            If the path cannot be written.
        """
        place = Path(path)
        check_place(place, SUFFIXES)
        text = self.to_json() if place.suffix.lower() == ".json" else self.to_html()
        # line ends are not translated: the same report has the same bytes
        with whole_file(place) as draft:
            draft.write_bytes(text.encode("utf-8"))

    def log(self) -> str:
        """Log the report to MLflow, as HTML and JSON, and return the id of the run that has it.

        That is the run that it was made from or, if there are several, a new one in their
        experiment.

        Raises
        ------
        InputError
            If the report was not made from runs.
        TrackingError
            If MLflow does not take it.
        """
        if not self.run_ids:
            raise InputError(
                "the report names no run that it could be logged to; make it from runs"
            )
        files = {"cfk/report.html": self.to_html(), "cfk/report.json": self.to_json()}
        # A batch of tags is written last: they mark the report as complete.
        tags = {_VERDICT: self.verdict}
        with tracking_errors("MLflow did not take the report"):
            client = client_of(self.tracking_uri, makes=False)
            run_id = self.run_ids[-1]
            if len(self.run_ids) == 1:
                write(client, run_id, texts=files, tags=tags)
                return run_id
            experiment = client.get_run(run_id).info.experiment_id
            sources = {_SOURCES: str(len(self.run_ids))}
            new = client.create_run(experiment, tags=sources, run_name="privacy report")
            new_id = str(new.info.run_id)
            status = "FAILED"
            try:
                write(client, new_id, texts=files, tags=tags)
                status = "FINISHED"
            finally:
                client.set_terminated(new_id, status=status)
        return new_id

    def __repr__(self) -> str:
        statuses = [check.status for check in self.data.checks]
        counts = [f"{statuses.count(status)} {text}" for status, text in STATUS_TEXTS.items()]
        return f"<PrivacyReport: {self.verdict}; {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        """Return the first page in short, and the checks; the whole report is `to_html`."""
        return page.render_cell(self.data, first_page(self.data))


def _command(
    source: Sequence[str], since: Moment | None, until: Moment | None, inputs: Inputs
) -> str:
    """Return the command that makes the report again, without the folders of files."""
    words = ["cfk", "report", *source]
    if since is not None:
        words += ["--since", str(since)]
    if until is not None:
        words += ["--until", str(until)]
    if inputs is not None:
        name = "inputs.json" if isinstance(inputs, Mapping) else Path(inputs).name
        words += ["--inputs", name]
    return shlex.join(words)


# --- from evidence to report ---

_MOST_CERTIFICATES = 50


def _computed(evidence: Evidence, inputs: HumanInputs, command: str) -> ReportData:
    """Compute and judge; the same evidence gives the same data."""
    limits = thresholds(inputs)
    least = limits["k"].value
    pooled = Pooled.of(evidence, None if least is None else int(least))
    questions = open_questions(inputs)
    case = JudgedCase(
        evidence=evidence,
        pooled=pooled,
        figures=figures(evidence, pooled),
        inputs=inputs,
        thresholds=limits,
        groups=groups(pooled),
        audited=runs.audited(evidence),
        n_open_questions=len(questions),
    )
    checks = tuple(judged(case))
    dp = statements.dp_statement(evidence)
    said = statements.circumstances(evidence, pooled, dp)
    metrics = tuple(metric for name, metric in case.figures.items() if name not in LATENCIES)
    attacks = tuple(case.attacks)
    floor = case.asked("pureness", "min_pureness").value
    return ReportData(
        report=_head(
            case,
            verdict(check.status for check in checks),
            statements.not_covered(said),
            command,
        ),
        system={question: inputs.answers.get(question) for question in QUESTIONS},
        population=statements.population_summary(evidence, case.figures),
        attributes=statements.columns(evidence),
        policy=statements.policy_summary(pooled, limits, said.guarantees),
        releases=_releases(case),
        checks=checks,
        metrics=metrics,
        distributions=distributions(evidence, pooled, case.audited, floor),
        groups=case.groups,
        attacks=attacks,
        criteria=statements.criteria(
            {check.id: check.status for check in checks},
            said.raw_private,
            regions=len(pooled.regions) > 0 or not said.prototypes,
            prototypes=said.prototypes,
        ),
        dp=dp,
        limits=statements.limits(said),
        open_questions=questions,
        controls=statements.controls(),
        environment=statements.environment_of(evidence),
        runs=_runs(evidence, pooled),
        certificates=_certificates(pooled),
        picture=_picture(pooled),
        definitions=statements.definitions_of(checks, metrics, attacks),
    )


def _head(case: JudgedCase, found: Verdict, uncovered: tuple[str, ...], command: str) -> ReportHead:
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
        "title": (
            f"Privacy report: {inputs.answers.get('system') or ', '.join(names) or 'explanations'}"
        ),
        "verdict": found,
        "period": {
            "first": first,
            "last": last,
            "since": statements.of_milliseconds(evidence.since),
            "until": statements.of_milliseconds(evidence.until),
        },
        "as_of": max(filter(None, (last, latest)), default=None),
        "command": command,
        "not_covered": uncovered,
    }


def _releases(case: JudgedCase) -> ReleaseCounts:
    """Return how many explanations were asked for, and what became of them."""
    withheld = case.pooled.withheld
    reasons = withheld["reason"].value_counts() if len(withheld) else pd.Series(dtype=int)
    return {
        "exact": case.figure("exact"),
        "generalised": case.figure("generalised"),
        "prototypes": case.figure("prototypes"),
        "withheld": case.figure("withheld"),
        "asked": case.figure("asked"),
        "released": case.figure("released"),
        "untracked": case.figure("untracked"),
        "reasons": {
            str(reason): Amount(value=int(reasons[reason]))
            for reason in sorted(reasons.index, key=str)
            if reasons[reason]
        },
        "latency": {name.removeprefix("latency_"): case.figure(name) for name in LATENCIES},
    }


def _runs(evidence: Evidence, pooled: Pooled) -> tuple[RunLine, ...]:
    """List the runs."""
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


def _certificates(pooled: Pooled) -> tuple[CertificateLine, ...]:
    """List the releases with the fewest people and the lowest pureness."""
    if not len(pooled.regions):
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


def _picture(pooled: Pooled) -> ShownRelease | None:
    """Return the release of median information loss: only widths and people."""
    names = [str(name) for name in pooled.regions if str(name).startswith(NCP_OF)]
    known = pooled.regions.dropna(subset=["ncp", *names]) if names else pooled.regions.head(0)
    if not len(known):
        return None
    middle = known.sort_values(["ncp", "k"], kind="stable").iloc[(len(known) - 1) // 2]
    shares = {name.removeprefix(NCP_OF): float(middle[name]) for name in names}
    return {
        "attributes": tuple(
            {"attribute": name, "share": Amount(value=share)} for name, share in shares.items()
        ),
        "k": Amount(value=int(middle["k"])),
    }


def _with_interval(row: pd.Series) -> Amount:
    value, low, high = (finite(row[name]) for name in ("pureness", "pureness_low", "pureness_high"))
    return Amount(value=value) if row.get("exact") else Amount(value=value, low=low, high=high)


def _optimality(row: pd.Series) -> str:
    if row.get("optimal"):
        return "proved"
    gap = row.get("gap")
    return "heuristic" if gap is None or pd.isna(gap) else f"gap at most {gap:.3g}"
