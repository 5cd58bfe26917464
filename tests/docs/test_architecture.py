"""The page on architecture names what exists, and a counterfactual takes the steps that it lists."""

from __future__ import annotations

import re
import runpy
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cfk_plugin
from cfk_plugin import Ledger, Population, PrivacyPolicy, Schema, protect

pytestmark = pytest.mark.full_search

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = Path(cfk_plugin.__file__).parent
PAGE = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)
PATHS = sorted({code for code in CODE if "/" in code or code.endswith(".py")})
DRAWING = runpy.run_path(str(REPOSITORY / "docs" / "assets" / "make_architecture.py"))
STEPS = re.findall(r"^\d+\. (.*(?:\n   .*)*)", PAGE, re.M)


def functions_of(step: str) -> list[tuple[str, str]]:
    """Return module and name of the functions that a step says are called: those followed by their
    module.
    """
    return [
        (path, name) for name, path in re.findall(r"`([\w.]+)` in\s+`(\w+(?:/\w+)+)\.py`", step)
    ]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    assert any((folder / path).exists() for folder in (PACKAGE, REPOSITORY, PACKAGE / "records"))


def test_every_room_is_named_in_the_order_of_imports() -> None:
    table = re.search(r"^## Rooms\n(.*?)^## ", PAGE, re.M | re.S)
    assert table
    rooms = re.findall(r"^\| `(\w+)/` \|", table[1], re.M)
    layers = re.search(
        r"^layers = \[\n(.*?)^\]",
        (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"),
        re.M | re.S,
    )
    assert layers
    chain = re.findall(r'^    "(\w+)",', layers[1], re.M)
    assert rooms == [layer for layer in reversed(chain) if layer in rooms]
    assert all((PACKAGE / room).is_dir() for room in rooms)


def test_the_picture_is_drawn_from_its_steps() -> None:
    assert DRAWING["PICTURE"].read_text(encoding="utf-8") == DRAWING["drawing"]()
    assert len(DRAWING["STEPS"]) == len(STEPS)


@pytest.mark.parametrize("step", DRAWING["STEPS"], ids=lambda step: step.code)
def test_every_class_of_the_picture_is_there(step: Any) -> None:
    module = step.module.removesuffix(".py").replace("/", ".")
    thing: Any = import_module(f"cfk_plugin.{module}")
    for part in step.code.split("."):
        thing = getattr(thing, part)


@pytest.mark.parametrize("step", STEPS)
def test_every_function_of_the_way_is_there(step: str) -> None:
    assert functions_of(step)
    for module, name in functions_of(step):
        thing: Any = import_module(f"cfk_plugin.{module.replace('/', '.')}")
        for part in name.split("."):
            thing = getattr(thing, part)


def test_a_counterfactual_goes_that_way(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"age": random.integers(20, 60, 200), "pay": random.integers(0, 100, 200)})
    table["adult"] = "yes"
    private = protect(
        lambda queries: table[table["pay"] > 50].iloc[: len(queries)],
        model=lambda rows: (rows["pay"] > 50).to_numpy(),
        population=Population.from_frame(
            table, Schema.from_frame(table, quasi_identifiers=["age"], immutable=["adult"])
        ),
        policy=PrivacyPolicy(guarantee="lookup"),
        desired=True,
        ledger=Ledger(f"sqlite:///{tmp_path / 'ledger.db'}", key=b"0" * 32, create=True),
    )
    entered: list[tuple[str, str]] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            module = Path(frame.f_code.co_filename).relative_to(PACKAGE).with_suffix("").as_posix()
            entered.append((module, frame.f_code.co_qualname))

    sys.setprofile(look)
    try:
        result = private.explain(table[table["pay"] <= 50].head(1))
    finally:
        sys.setprofile(None)
    assert len(result.released) == 1
    told = [function for step in STEPS for function in functions_of(step) if function in entered]
    visited = [
        number
        for number, step in enumerate(STEPS, 1)
        if any(function in entered for function in functions_of(step))
    ]
    assert visited == [1, 2, 3, 4, 5, 6, 7, 8, 10]  # fixed regions need no rerun, step 9
    first = [entered.index(function) for function in told]
    assert first == sorted(first)
