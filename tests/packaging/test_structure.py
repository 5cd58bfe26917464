"""The package can be held in one head: one word for one thing, and a short way from query to explanation."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

import cfk_plugin

PACKAGE = Path(cfk_plugin.__file__).parent
ROOMS = ("data", "metrics", "records", "protection", "release", "dp", "report")
MOST = {"reciprocal": (17, 120, 150), "catalogue": (23, 215, 300)}  # files, functions, moves between files


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


# In a process of its own: what other tests have imported and switched on is on nobody's way.
WAY = """
import json, sys
import numpy as np
import pandas as pd
from cfk_plugin import Population, PrivacyPolicy, Schema, protect

random = np.random.default_rng(0)
table = pd.DataFrame(
    {"age": random.integers(20, 60, 400), "sex": random.choice(["m", "f"], 400), "pay": random.integers(0, 100, 400)}
)
private = protect(
    lambda queries: table[table["pay"] > 50].iloc[: len(queries)],
    model=lambda rows: (rows["pay"] > 50).to_numpy(),
    population=Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", "sex"])),
    policy=PrivacyPolicy(k=10, guarantee=sys.argv[1]),
    desired=True,
)
queries = table[table["pay"] <= 50].head(5)
private.explain(queries)
entered = []

def look(frame, event, _):
    if event == "call" and "cfk_plugin" in frame.f_code.co_filename:
        entered.append((frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_code.co_firstlineno))

sys.setprofile(look)
released = private.explain(queries).released
sys.setprofile(None)
print(json.dumps([len(released), entered]))
"""


@pytest.mark.parametrize("guarantee", MOST)
def test_one_explanation_goes_a_short_way(guarantee: str) -> None:
    """A catalogue looks for answers and moves them, where a fixed region is looked up."""
    done = subprocess.run([sys.executable, "-c", WAY, guarantee], capture_output=True, text=True, check=True)
    released, entered = json.loads(done.stdout)
    files = [file for file, _, _ in entered if Path(file).is_relative_to(PACKAGE)]
    assert released == 5
    functions = {tuple(function) for function in entered if function[0] in files}
    way = len(set(files)), len(functions), sum(a != b for a, b in pairwise(files))
    assert len(files) > 0
    assert all(found <= most for found, most in zip(way, MOST[guarantee], strict=True))
