"""The package can be held in one head: one word for one thing, and a short way from query to explanation."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import numpy as np
import pandas as pd
import pytest

import cfk_plugin
from cfk_plugin import Explanations, Population, PrivacyPolicy, ProtectedExplainer, Schema, protect

PACKAGE = Path(cfk_plugin.__file__).parent
ROOMS = ("data", "metrics", "records", "protection", "release", "dp")
MOST_FILES, MOST_FUNCTIONS, MOST_MOVES = 17, 120, 150


def test_a_class_name_means_one_thing() -> None:
    classes = {
        path: [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
        for path in PACKAGE.rglob("*.py")
    }
    count = Counter(name for names in classes.values() for name in names)
    own = {name for path, names in classes.items() if path.parent.name in (*ROOMS, PACKAGE.name) for name in names}
    assert own
    assert not {name for name in own if count[name] > 1}


def test_modules_import_in_no_circle() -> None:
    graph = grimp.build_graph("cfk_plugin", exclude_type_checking_imports=False)
    names = graph.modules - {"cfk_plugin"}
    own = {name for name in names if name.count(".") == 1 or name.split(".")[1] in ROOMS}
    imported = {name: graph.find_modules_directly_imported_by(name) & own for name in own}
    assert len(list(TopologicalSorter(imported).static_order())) > len(ROOMS)


@pytest.fixture
def explainer() -> tuple[ProtectedExplainer, pd.DataFrame]:
    """Return an explainer with the default guarantee and five queries, explained once already."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": random.integers(20, 60, 400),
            "sex": random.choice(["m", "f"], 400),
            "pay": random.integers(0, 100, 400),
        }
    )
    private = protect(
        lambda queries: table[table["pay"] > 50].iloc[: len(queries)],
        model=lambda rows: (rows["pay"] > 50).to_numpy(),
        population=Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", "sex"])),
        policy=PrivacyPolicy(k=10),
        desired=True,
    )
    queries = table[table["pay"] <= 50].head(5)
    private.explain(queries)
    return private, queries


def test_one_explanation_goes_a_short_way(explainer: tuple[ProtectedExplainer, pd.DataFrame]) -> None:
    private, queries = explainer
    files: list[str] = []
    functions: set[Any] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.append(frame.f_code.co_filename)
            functions.add(frame.f_code)

    sys.setprofile(look)
    try:
        result = private.explain(queries)
    finally:
        sys.setprofile(None)
    assert isinstance(result, Explanations)
    assert len(result.released) == len(queries)
    moves = sum(a != b for a, b in pairwise(files))
    assert len(set(files)) <= MOST_FILES
    assert len(functions) <= MOST_FUNCTIONS
    assert moves <= MOST_MOVES
