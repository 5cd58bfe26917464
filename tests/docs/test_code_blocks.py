"""Every code block of README.md and docs/ runs, and prints what the page says it prints.

The blocks of one page run in order, in one namespace and one empty folder. A ``text`` block right
below a block is its output and is compared exactly. Console lines that start with ``cfk`` run
through the command line in the same folder; ``# exit code 3`` at the end of a line is the exit code
it must have, 0 where nothing is said.

After a change that alters an output, ``python tests/docs/test_code_blocks.py docs/PAGE.md ...``
writes it anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cfk_plugin.cli import app

REPOSITORY = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$(?:\n\s*^```text\n(.*?)^```$)?", re.M | re.S)
EXIT_CODE = re.compile(r"# exit code (\d)$")

RUN_ELSEWHERE = {
    "docs/how-to/write-an-adapter.md": "its files are written out, installed and run by test_write_an_adapter.py",
}
NOT_RUN = {
    "make ": "sets up an environment of its own",
    "python tests/benchmarks": "runs for minutes, on tables that are not here",
    "python -m reproduction": "does so, too",
    "pip install": "changes the environment",
    "export CFK": "sets the environment of a shell",
    "export MLFLOW": "does so, too",
    "models:/": "needs a model registry",
    "mlflow models serve": "run by tests/serving/test_servers.py",
    "cfk track": "needs a journal; see tests/tracking/test_journal.py",
    "curl ": "asks a server; see tests/serving/test_servers.py",
}
"""Beginnings or parts of console lines that are not run here, each with the reason."""

NEEDS = {
    "README.md": "dice_ml",
    "docs/tutorials/quick-start.md": "dice_ml",
    "docs/how-to/protect-on-spark.md": "pyspark",
    "docs/how-to/answer-with-prototypes.md": "opendp",
}
"""The library that a page explains with; its page is skipped where it is not installed."""

NEEDS_COMMAND = {"docs/how-to/protect-on-spark.md": "java"}
"""The program that a page needs; its page is skipped where there is none."""

OWN_PROCESS = {
    "docs/how-to/protect-on-spark.md": "a process has one Spark, and other tests have theirs",
}

SLOW = {
    "docs/explanation/methods-of-the-papers.md",
    "docs/how-to/publish-a-catalogue.md",
    "docs/how-to/answer-with-prototypes.md",
    "docs/how-to/audit-a-release.md",
    "docs/how-to/choose-a-policy.md",
    "docs/how-to/log-to-mlflow.md",
    "docs/how-to/make-a-report.md",
    "docs/how-to/protect-on-spark.md",
    "docs/how-to/serve-with-mlflow.md",
    "docs/how-to/when-data-or-model-change.md",
    "docs/how-to/wrap-an-explainer.md",
    "docs/reference/cli.md",
    "docs/tutorials/quick-start.md",
}
"""Pages that take more than two seconds of a core."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, text, line in the page, and the output that the page says it
    has.
    """

    language: str
    text: str
    line: int
    output: str | None


def pages() -> list[str]:
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


def blocks(page: str) -> list[Block]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2, match[3])
        for match in FENCE.finditer(text)
    ]


def runnable() -> list[Any]:
    found = []
    for page in pages():
        if page in RUN_ELSEWHERE or not any(b.language in RUN for b in blocks(page)):
            continue
        found.append(pytest.param(page, id=page, marks=[pytest.mark.slow] if page in SLOW else []))
    return found


def run_python(page: str, block: Block, namespace: dict[str, Any]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
    return said.getvalue()


def run_console(page: str, block: Block, namespace: dict[str, Any]) -> str:
    said = ""
    for line in block.text.replace("\\\n", "").splitlines():
        if not line.strip() or any(part in line for part in NOT_RUN):
            continue
        words = shlex.split(line, comments=True)
        given = dict(word.split("=", 1) for word in words[: words.index("cfk")])
        done = CliRunner().invoke(app, words[words.index("cfk") + 1 :], env=given)
        expected = EXIT_CODE.search(line)
        assert done.exit_code == int(expected[1] if expected else 0), (
            f"{page}: {line}\n{done.output}"
        )
        said += done.output
    return said


def run_json(page: str, block: Block, namespace: dict[str, Any]) -> str:
    json.loads(block.text)
    return ""


def run_toml(page: str, block: Block, namespace: dict[str, Any]) -> str:
    tomllib.loads(block.text)
    return ""


RUN: dict[str, Callable[[str, Block, dict[str, Any]], str]] = {
    "python": run_python,
    "console": run_console,
    "sh": run_console,
    "json": run_json,
    "toml": run_toml,
}


def files_of_the_command_line_page() -> dict[str, Any]:
    """Write the tables, schema and model that docs/reference/cli.md speaks of."""
    import joblib
    import numpy as np
    import pandas as pd
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(0)
    train = pd.DataFrame(
        {"age": random.integers(20, 60, 300), "income": random.integers(20, 90, 300)}
    )
    keep = FunctionTransformer(feature_names_out="one-to-one")
    model = make_pipeline(keep, DecisionTreeClassifier(max_depth=2, random_state=0))
    model.fit(train, np.where(train["income"] > 50, "yes", "no"))
    train.to_csv("train.csv", index=False)
    train[train["income"] > 50].head(5).to_csv("cf.csv", index=False)
    train[train["income"] <= 50].head(5).to_csv("queries.csv", index=False)
    Path("schema.json").write_text('{"quasi_identifiers": ["age"]}', encoding="utf-8")
    joblib.dump(model, "model.joblib")
    joblib.dump(model, "new.joblib")
    return {}


BEFORE: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/reference/cli.md": files_of_the_command_line_page,
}
"""What a page takes for granted and does not make itself."""


@pytest.mark.parametrize("page", runnable())
@pytest.mark.usefixtures("mlflow_store")
def test_blocks_print_what_the_page_says(page: str) -> None:
    """They run in order, in one namespace and one empty folder."""
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason=f"{page} explains with it")
    if page in NEEDS_COMMAND and shutil.which(NEEDS_COMMAND[page]) is None:
        pytest.skip(f"{page} needs {NEEDS_COMMAND[page]}, and there is none")
    if page not in OWN_PROCESS:
        check(page)
        return
    command = [sys.executable, __file__, "--check", str(REPOSITORY / page)]
    # nobody has activated an environment for the tests
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]


def check(page: str) -> None:
    """Run a page in the current folder and compare what its blocks print with what it says they
    do.
    """
    namespace: dict[str, Any] = {"__name__": "page", **BEFORE.get(page, dict)()}
    for block in blocks(page):
        if block.language in RUN:
            said = RUN[block.language](page, block, namespace)
            if block.output is not None:
                assert said.splitlines() == block.output.splitlines(), f"{page}:{block.line}"


def test_every_block_has_a_known_language() -> None:
    """It is run, or is text."""
    for page in pages():
        assert {block.language for block in blocks(page)} <= {*RUN, "text"}, page


def write_outputs(page: str) -> None:
    """Run a page in an empty folder and put what its blocks print in the place of what it says they
    do.
    """
    path = REPOSITORY / page
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        namespace: dict[str, Any] = {"__name__": "page", **BEFORE.get(page, dict)()}
        at = 0
        for block in blocks(page):
            said = RUN[block.language](page, block, namespace) if block.language in RUN else ""
            if block.output is not None:
                at = text.index(block.text, at) + len(block.text)
                start = text.index("```text\n", at) + len("```text\n")
                end = start + len(block.output)
                text = (
                    text[:start] + "".join(f"{line}\n" for line in said.splitlines()) + text[end:]
                )
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    checks = sys.argv[1] == "--check"
    for given in sys.argv[1 + checks :]:
        (check if checks else write_outputs)(
            Path(given).resolve().relative_to(REPOSITORY).as_posix()
        )
