"""A report as PDF, printed by a Chromium of the system: what is on paper is what is in the HTML."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from cfk_plugin.errors import MissingDependencyError, ReportError

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
    """Print a report to a PDF.

    Parameters
    ----------
    html : str
        The report, best as ``render_html(document, print_edition=True)``: on A4, with everything open.
    path : path
        Where the PDF goes; what stands there is replaced when the PDF is whole.
    browser : str, optional
        Program of a Chromium, of Chrome or of Edge. Without it the environment variable ``CFK_CHROMIUM`` is asked, then
        the path is searched for `BROWSERS`.

    Raises
    ------
    MissingDependencyError
        If there is no such browser.
    ReportError
        If the browser fails, or has not printed within two minutes.

    Notes
    -----
    The browser runs without a window, a network or a profile of its own, on a copy of the report in a temporary folder
    that is removed. Two PDFs of one report differ in their time of creation.
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
