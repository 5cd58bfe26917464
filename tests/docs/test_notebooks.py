"""Every notebook of docs/ runs from top to bottom and shows what it says it shows.

After a change that alters what is shown, ``python tests/docs/test_notebooks.py
docs/notebooks/NAME.ipynb ...`` writes their outputs anew.
"""

from __future__ import annotations

import os
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
def test_notebook_shows_what_it_says(path: Path) -> None:
    """In a kernel of a process of its own."""
    for library in ("nbclient", "ipykernel"):
        pytest.importorskip(library, reason=f"{library} runs notebooks; it is of the extra [dev]")
    command = [sys.executable, __file__, "--check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


if __name__ == "__main__":
    os.environ |= QUIET
    is_check = sys.argv[1] == "--check"
    for given in sys.argv[1 + is_check :]:
        if is_check:
            check(Path(given))
        else:
            import nbformat

            nbformat.write(run(Path(given)), given)
