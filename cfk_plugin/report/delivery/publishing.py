"""A report in MLflow: beside the run that it is made from, or in a run of its own; and reading it back."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError
from cfk_plugin.records.run import client_of, tracking_errors, write
from cfk_plugin.report.data import ReportData
from cfk_plugin.report.reading.artifacts import Artifacts
from cfk_plugin.report.reading.selection import run_named

if TYPE_CHECKING:
    from mlflow import MlflowClient

SOURCES = "cfk.report"
"""Tag of a run that holds a report of several runs: their ids."""
VERDICT = "cfk.report.verdict"
"""Tag of a run that holds a report."""

_NAMES: Mapping[str, str] = {"internal": "cfk/report", "external": "cfk/report-external"}
_LONGEST_TAG = 8_000  # characters that MLflow stores


def log_report(
    data: ReportData, texts: Mapping[str, str], run_ids: Sequence[str], *, tracking_uri: str | None = None
) -> str:
    """Log a report to MLflow.

    A report of one run is logged to it; one of several runs to a new run in the experiment of the last of them, which
    is ended at once. MLflow shows the HTML in its own page, without scripts.

    Parameters
    ----------
    data : ReportData
    texts : mapping of str to str
        What is logged, by suffix (``html``, ``json``, ``md``): the artifacts ``cfk/report.html`` and so on, of an
        external edition ``cfk/report-external.html``.
    run_ids : sequence of str
        What it is made from, oldest first.
    tracking_uri : str, optional
        Default: MLflow's own setting.

    Returns
    -------
    str
        Id of the run that holds the report. Its tag `VERDICT` has the verdict; of a new run `SOURCES` has the ids.

    Raises
    ------
    InputError
        If no run is given.
    TrackingError
        If MLflow does not take it. The message says nothing of what is in it.
    """
    if not run_ids:
        raise InputError("the report names no run that it could be logged to; make it from runs")
    with tracking_errors("MLflow did not take the report"):
        client = client_of(tracking_uri)
        if len(run_ids) == 1:
            _write(client, run_ids[0], data, texts)
            return run_ids[0]
        return _in_a_run_of_its_own(client, run_ids, data, texts)


def logged_report(run_id: str, *, tracking_uri: str | None = None) -> ReportData:
    """Return the internal edition that a run holds.

    Raises
    ------
    InputError
        If there is no such run, it holds no report, or the report is not one that this release reads.
    TrackingError
        If MLflow cannot be read.
    """
    folder, name = _NAMES["internal"].split("/")
    client = client_of(tracking_uri)
    run = run_named(client, run_id)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as copies:
        artifacts = Artifacts.of(run, client.tracking_uri, Path(copies))
        if f"{name}.json" not in artifacts.names(folder):
            raise InputError(f"run {run_id} holds no report; log one with cfk report --run {run_id} --log")
        with artifacts.local(f"{folder}/{name}.json") as copy:
            content = copy.read_bytes()
    try:
        return ReportData.from_json(content.decode("utf-8", "replace"))
    except InputError as error:
        raise InputError(f"run {run_id}: {error}") from None


def _in_a_run_of_its_own(
    client: MlflowClient, run_ids: Sequence[str], data: ReportData, texts: Mapping[str, str]
) -> str:
    experiment = client.get_run(run_ids[-1]).info.experiment_id
    made = client.create_run(experiment, tags={SOURCES: _listed(run_ids)}, run_name="privacy report")
    run_id, status = str(made.info.run_id), "FAILED"
    try:
        _write(client, run_id, data, texts)
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status=status)
    return run_id


def _write(client: MlflowClient, run_id: str, data: ReportData, texts: Mapping[str, str]) -> None:
    files = {f"{_NAMES[data.report['edition']]}.{suffix}": text for suffix, text in texts.items()}
    write(client, run_id, texts=files, tags={VERDICT: data.verdict})  # the tag last: it says that there is a report


def _listed(run_ids: Sequence[str]) -> str:
    """Return as many ids as a tag holds; the report itself has all."""
    if len(text := ",".join(run_ids)) <= _LONGEST_TAG:
        return text
    kept = text[: _LONGEST_TAG - 20].rpartition(",")[0]
    return f"{kept} and {len(run_ids) - kept.count(',') - 1} more"
