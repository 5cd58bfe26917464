"""Every notebook of docs/ runs from top to bottom and shows what it says it shows.

After a change that alters what is shown, ``python tests/docs/test_notebooks.py
docs/notebooks/NAME.ipynb ...`` writes their outputs anew.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
PARTS = ("text/plain", "text/html")  # compared; pictures differ by versions of fonts


def run(path: Path) -> Any:
    """Return the notebook with the outputs of a new kernel, in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
        if cell.cell_type == "code":  # progress, which depends on the machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def shown(notebook: Any) -> list[list[dict[str, str]]]:
    """Return what each cell of code shows, as text."""
    return [
        [
            {"text": output["text"]}
            if "text" in output
            else {kind: output["data"].get(kind, "") for kind in PARTS}
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def check(path: Path) -> None:
    import nbformat

    kept, found = shown(nbformat.read(path, as_version=4)), shown(run(path))
    for at, (said, says) in enumerate(zip(kept, found, strict=True)):
        assert said == says, f"{path.name}, cell of code {at}:\n{says}"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs_and_shows_what_it_says(path: Path) -> None:
    for library in ("nbclient", "ipykernel"):
        pytest.importorskip(library, reason=f"{library} runs notebooks; it is of the extra [dev]")
    command = [sys.executable, __file__, "--check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_committed_notebook_was_run_in_order_and_ended_well(path: Path) -> None:
    nbformat = pytest.importorskip(
        "nbformat", reason="nbformat reads notebooks; it is of the extra [dev]"
    )
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [
        output
        for output in outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert any(
        "<svg" in output.get("data", {}).get("text/html", "")
        or "image/png" in output.get("data", {})
        for output in outputs
    )
    pictures = [
        base64.b64decode(o["data"]["image/png"])
        for o in outputs
        if "image/png" in o.get("data", {})
    ]
    assert all(len(picture) < 60_000 for picture in pictures)
    assert not re.search(r"object at 0x|/tmp/", path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    os.environ |= QUIET
    is_check = sys.argv[1] == "--check"
    for given in sys.argv[1 + is_check :]:
        if is_check:
            check(Path(given))
        else:
            import nbformat

            nbformat.write(run(Path(given)), given)
