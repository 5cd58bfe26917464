"""A report where it is read: in a file, on paper, in MLflow's runs and its registry."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError, MissingDependencyError, ReportError, TrackingError
from cfk_plugin.records.run import LONGEST_DESCRIPTION, client_of, kind_of, tracking_errors, write
from cfk_plugin.report.data import ReportData
from cfk_plugin.report.runs import run_named
from cfk_plugin.report.store import Artifacts
from cfk_plugin.report.summaries import fitted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


def check_place(path: Path, suffixes: Iterable[str]) -> None:
    """Refuse, before any work, a place that cannot be written, or whose name does not end in one of the suffixes."""
    known = tuple(suffixes)
    if path.suffix.lower() not in known:
        raise InputError(f"{path}: the name must end in {' or '.join(known)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")


def write_whole(path: Path, text: str) -> None:
    """Write a text; who reads the file at that moment finds the earlier one or this one, never half of it."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(text.encode("utf-8"))  # no line end is translated: the same report, the same bytes
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror or type(error).__name__})") from error


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
"""Names under which a Chromium is looked for on the path."""

_SECONDS = 120.0

_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers give it too little room
    "--no-first-run",
    "--no-pdf-header-footer",  # would hold the date and a path of this machine
    "--generate-pdf-document-outline",
    # The report asks for nothing; the browser shall not either.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--proxy-server=127.0.0.1:9",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def write_pdf(html: str, path: str | os.PathLike[str], *, browser: str | None = None) -> None:
    """Print a report, best the edition for print, to a PDF; what stands there is replaced when the PDF is whole.

    The browser is the one named here or in ``CFK_CHROMIUM``, or the first of `BROWSERS` on the path. It runs without a
    window, a network or a profile of its own, on a copy of the report in a temporary folder that is removed. Two PDFs
    of one report differ in their time of creation.
    """
    program = _find(browser)
    with tempfile.TemporaryDirectory(prefix="cfk-pdf-", ignore_cleanup_errors=True) as folder:
        page, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        page.write_text(html, encoding="utf-8")
        command = [program, *_OPTIONS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses to run as root with one
        ended = _run([*command, page.as_uri()])
        if not printed.is_file() or not printed.read_bytes().startswith(b"%PDF"):
            msg = f"{program} did not print the report ({ended}); try another one with `browser` or CFK_CHROMIUM"
            raise ReportError(msg)
        target = Path(path)
        shutil.copyfile(printed, target.with_name(f"{target.name}.part"))
        target.with_name(f"{target.name}.part").replace(target)


def _find(browser: str | None) -> str:
    named = browser or os.environ.get("CFK_CHROMIUM")
    for name in [named] if named else BROWSERS:
        if found := shutil.which(name):
            return found
    looked = f"{named} is no program" if named else f"none of {', '.join(BROWSERS)} is on the path"
    msg = f"a PDF is printed by a Chromium, and {looked}; install one (apt install chromium) or name it in CFK_CHROMIUM"
    raise MissingDependencyError(msg)


def _run(command: list[str]) -> str:
    """Run the browser, and end whatever it started when its time is over; return how it ended."""
    with subprocess.Popen(  # noqa: S603 - the program is the user's choice
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return f"exit code {process.wait(_SECONDS)}"
        except subprocess.TimeoutExpired:
            return f"no answer in {_SECONDS:.0f} s"
        finally:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


SOURCES = "cfk.report"
"""Tag of a run that holds a report of several runs: their ids."""
VERDICT = "cfk.report.verdict"
"""Tag of a run that holds a report."""

_NAMES: Mapping[str, str] = {"internal": "cfk/report", "external": "cfk/report-external"}
_LONGEST_TAG = 8_000  # characters that MLflow stores


def log_report(
    data: ReportData, texts: Mapping[str, str], run_ids: Sequence[str], *, tracking_uri: str | None = None
) -> str:
    """Log the texts of a report, by suffix, to MLflow, and return the run that holds them, with the tag `VERDICT`.

    A report of one run is logged to it; one of several runs to a new run in the experiment of the last of them, with
    tag `SOURCES`, which is ended at once. MLflow shows the HTML in its own page, without scripts.
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
    """Return the internal edition that a run holds."""
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


_START, _END = "<!-- cfk report: replaced by the next one -->", "<!-- end of cfk report -->"
_SECTION = re.compile(rf"\n*{re.escape(_START)}(?:(?!{re.escape(_START)}).)*?{re.escape(_END)}\n*", re.DOTALL)
_HEADING = re.compile(r"^(#{1,5}) ", re.MULTILINE)
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def describe_model_version(name: str, version: str, text: str, tracking_uri: str | None = None) -> None:
    """Put a card into the description of a model's version, in the place of the earlier report's.

    Parameters
    ----------
    name, version : str
        Of a registered model.
    text : str
        The card, from `render_model_card`. Its headings become one level lower, and sections at its end are left out
        where the description has no room for them. What else the description says stays as it is.
    tracking_uri : str, optional
        Default: MLflow's own settings.

    Raises
    ------
    InputError
        If there is no such version, or its description leaves no room for the verdict.
    TrackingError
        If MLflow cannot be asked, or does not take it.
    """
    try:
        client = client_of(tracking_uri)
        found = client.get_model_version(name, version)
    except TrackingError:
        raise
    except Exception as error:
        if getattr(error, "error_code", None) in _UNKNOWN:
            raise InputError(f"the registry has no version {version} of a model {name!r}") from None
        raise TrackingError(f"the registry cannot be read ({kind_of(error)})") from error
    description = _described(found, text)
    with tracking_errors("the registry did not take the description"):
        client.update_model_version(name, version, description)


def _described(found: ModelVersion, text: str) -> str:
    own = _SECTION.sub("\n\n", found.description or "").strip()
    before = f"{own}\n\n{_START}\n" if own else f"{_START}\n"
    after = f"\n{_END}\n"
    # One level lower is one character more: make room for the marks first, then for the headings.
    room = LONGEST_DESCRIPTION - len(before) - len(after)
    card = fitted(text, room - len(_HEADING.findall(text)))
    if not card:
        raise InputError(
            f"the description of version {found.version} of {found.name!r} has {len(own):,} of "
            f"{LONGEST_DESCRIPTION:,} characters and leaves no room for the report's verdict; shorten it"
        )
    return before + _HEADING.sub(r"#\1 ", card).strip() + after
