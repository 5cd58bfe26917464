"""The privacy report of logged runs, in every form that it has."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError
from cfk_plugin.report.amounts import Edition
from cfk_plugin.report.data import Change, ReportData, Verdict
from cfk_plugin.report.delivery import check_place, write_whole
from cfk_plugin.report.document import STATUS_TEXTS

if TYPE_CHECKING:
    from cfk_plugin.hookspecs import Progress
    from cfk_plugin.report.document import Document
    from cfk_plugin.report.inputs import HumanInputs
    from cfk_plugin.report.runs import Evidence
    from cfk_plugin.report.store import Moment


SUFFIXES = (".html", ".json", ".md", ".csv", ".xml", ".pdf")
"""Formats of `PrivacyReport.save`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivacyReport:
    """What was released and at what risk, from logged runs alone.

    Made by `of_runs` or `of_experiment`; every form is a pure function of `data`.

    Attributes
    ----------
    data : ReportData
        What the report says. In the external edition class sizes are bands and no run is named.
    run_ids : tuple of str
        What it was made from, oldest first; empty for a report that was read from its JSON.
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
            The period; a day, as in ``until="2026-10-31"``, is in it up to its end.
        edition : {"internal", "external"}
            Exact and for the house, or banded and to be given away.
        preset : str, optional
            Thresholds with a source; default: what the policies of the runs ask for.
        inputs : HumanInputs or path, optional
            What people say; without it every question is a placeholder, and the verdict is at best review.
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
            If a run, the period or a setting is not what it should be.
        TrackingError
            If the store does not answer, or holds something damaged.
        """
        from cfk_plugin.report.runs import read_runs

        wanted = [run_ids] if isinstance(run_ids, str) else list(run_ids)
        settings = _Settings(since, until, edition, preset, inputs, previous)
        reading = partial(read_runs, wanted, tracking_uri=tracking_uri, since=since, until=until, progress=progress)
        return cls(*settings.report(reading, [("--run", each) for each in wanted]), tracking_uri)

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
        """Make the report of all runs of an experiment, by its name or, with ``id:`` before it, its id.

        Parameters, result and errors are those of `of_runs`.
        """
        from cfk_plugin.report.runs import read_experiment

        settings = _Settings(since, until, edition, preset, inputs, previous)
        reading = partial(read_experiment, name, tracking_uri=tracking_uri, since=since, until=until, progress=progress)
        return cls(*settings.report(reading, [("--experiment", name)]), tracking_uri)

    @classmethod
    def read(cls, source: str | Path, *, tracking_uri: str | None = None) -> PrivacyReport:
        """Read a report back: from its JSON, or from the id of a run that it was logged to.

        Raises
        ------
        InputError
            If there is neither, or it is no report that this release reads.
        TrackingError
            If MLflow cannot be read.
        """
        from cfk_plugin.report.delivery import logged_report

        path = Path(source)
        if isinstance(source, Path) or path.is_file() or path.suffix.lower() == ".json":
            return cls(_read_json(path))
        return cls(logged_report(source, tracking_uri=tracking_uri), (), tracking_uri)

    @property
    def verdict(self) -> Verdict:
        """The verdict: pass, review or fail."""
        return self.data.verdict

    def to_json(self) -> str:
        """Return the JSON; its schema is ``cfk_plugin/schemas/report-1.schema.json``."""
        return self.data.to_json()

    def to_html(self, *, print_edition: bool = False, address: str | None = None) -> str:
        """Return one HTML file that loads nothing and holds no script.

        Parameters
        ----------
        print_edition : bool
            For paper: everything that can be folded is open.
        address : str, optional
            Of the tracking server: run ids become links to it. Without it they are text.
        """
        from cfk_plugin.report.render import render_html

        return render_html(self._document(address), print_edition=print_edition)

    def to_markdown(self) -> str:
        """Return the whole report as Markdown."""
        from cfk_plugin.report.render import render_markdown

        return render_markdown(self._document())

    def to_csv(self) -> str:
        """Return one line per check as CSV."""
        from cfk_plugin.report.summaries import render_csv

        return render_csv(self.data)

    def to_junit(self) -> str:
        """Return the checks as JUnit XML: what needs a person, or was not measured, is skipped, never green."""
        from cfk_plugin.report.summaries import render_junit

        return render_junit(self.data)

    def model_card(self, *, where: str = "") -> str:
        """Return the report in short, for the description of a registered model; see `describe_model_version`.

        Parameters
        ----------
        where : str
            Where the whole report is.
        """
        from cfk_plugin.report.summaries import render_model_card

        return render_model_card(self.data, where=where)

    def save(self, path: str | os.PathLike[str], *, print_edition: bool = False, address: str | None = None) -> None:
        """Write the report as the name ends: .html, .json, .md, .csv, .xml (JUnit) or .pdf.

        What stood there is replaced when the new file is whole. A PDF is printed by a Chromium of the system.

        Parameters
        ----------
        path : path
        print_edition, address
            Of HTML, as for `to_html`; a PDF is always the edition for print.

        Raises
        ------
        InputError
            If the place cannot be written.
        MissingDependencyError
            If a PDF is asked for and there is no Chromium.
        """
        place = Path(path)
        check_place(place, SUFFIXES)
        suffix = place.suffix.lower()
        if suffix == ".pdf":
            from cfk_plugin.report.delivery import write_pdf

            write_pdf(self.to_html(print_edition=True, address=address), place)
            return
        makers: dict[str, Callable[[], str]] = {
            ".html": lambda: self.to_html(print_edition=print_edition, address=address),
            ".json": self.to_json,
            ".md": self.to_markdown,
            ".csv": self.to_csv,
            ".xml": self.to_junit,
        }
        write_whole(place, makers[suffix]())

    def log(self) -> str:
        """Log the report to MLflow, as HTML, JSON and Markdown, and return the id of the run that holds it.

        That is the run that it was made from or, where it was made from several, a new one in their experiment.

        Raises
        ------
        InputError
            If the report was not made from runs.
        TrackingError
            If MLflow does not take it.
        """
        from cfk_plugin.report.delivery import log_report

        texts = {"html": self.to_html(), "json": self.to_json(), "md": self.to_markdown()}
        return log_report(self.data, texts, self.run_ids, tracking_uri=self.tracking_uri)

    def compare(self, earlier: PrivacyReport) -> tuple[Change, ...]:
        """Return ``what``, ``before`` and ``after`` of everything that changed since an earlier report.

        Raises
        ------
        InputError
            If the two are of different editions.
        """
        from cfk_plugin.report.summaries import compare

        return compare(earlier.data, self.data)

    def __repr__(self) -> str:
        statuses = [check.status for check in self.data.checks]
        counts = [f"{statuses.count(status)} {text}" for status, text in STATUS_TEXTS.items()]
        return f"<PrivacyReport: {self.verdict}; {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        """Return verdict and checks, for notebooks; the whole report is `to_html`."""
        from cfk_plugin.report.summaries import render_cell

        return render_cell(self.data)

    def _document(self, address: str | None = None) -> Document:
        from cfk_plugin.report.compose import compose

        if address is not None and not address.startswith(("http://", "https://")):
            raise InputError(f"the address of the tracking server must begin with http:// or https://, got {address!r}")
        return compose(self.data, address=address)


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a report is made with besides its runs, as it is given; see `PrivacyReport.of_runs`."""

    since: Moment | None
    until: Moment | None
    edition: Edition
    preset: str | None
    inputs: HumanInputs | str | Path | None
    previous: PrivacyReport | str | Path | None

    def report(
        self, reading: Callable[[], Evidence], source: Sequence[tuple[str, str]]
    ) -> tuple[ReportData, tuple[str, ...]]:
        """Check everything, read the runs, and return the report, exactly as its JSON will be read back, and their ids.

        No run is read for a report that cannot be made.
        """
        from cfk_plugin.report.build import build
        from cfk_plugin.report.inputs import HumanInputs, thresholds

        if self.edition not in ("internal", "external"):
            raise InputError(f"edition must be internal or external, got {self.edition!r}")
        given, earlier = self.inputs, self.previous
        inputs = HumanInputs.read(given) if isinstance(given, str | Path) else given or HumanInputs()
        thresholds(self.preset, inputs)
        previous = _read_json(Path(earlier)) if isinstance(earlier, str | Path) else earlier.data if earlier else None
        if previous is not None and previous.report["edition"] != self.edition:
            raise InputError(
                f"the earlier report is the {previous.report['edition']} edition and this one is to be the "
                f"{self.edition}; give one of the same edition"
            )
        evidence = reading()
        made = build(
            evidence,
            inputs=inputs,
            preset=self.preset,
            edition=self.edition,
            command=self.command(source),
            previous=previous,
        )
        # The order of keys and the kind of sequences decide what renderings look like: there is one form, the JSON's.
        return ReportData.from_json(made.to_json()), tuple(run.run_id for run in evidence.runs)

    def command(self, source: Sequence[tuple[str, str]]) -> str:
        """Return the command that makes the report again.

        Names of files stand without their folders, and where things are (tracking server, outputs) is left out: it
        does not change what the report says, and does not belong into it.
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
        return shlex.join(["cfk", "report", *(word for option in (*source, *options) for word in option)])


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
