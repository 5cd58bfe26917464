"""The package can be held in one head: one word means one thing, and imports form no circle."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import cfk_plugin

PACKAGE = Path(cfk_plugin.__file__).parent
ROOMS = ("data", "metrics", "records", "protection", "release", "dp", "report")


def test_a_class_name_means_one_thing() -> None:
    classes = {
        path: [
            node.name
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef)
        ]
        for path in PACKAGE.rglob("*.py")
    }
    count = Counter(name for names in classes.values() for name in names)
    own = {
        name
        for path, names in classes.items()
        if path.parent.name in (*ROOMS, PACKAGE.name)
        for name in names
    }
    assert own
    assert not {name for name in own if count[name] > 1}


def test_modules_import_in_no_circle() -> None:
    graph = grimp.build_graph("cfk_plugin", exclude_type_checking_imports=False)
    names = graph.modules - {"cfk_plugin"}
    own = {name for name in names if name.count(".") == 1 or name.split(".")[1] in ROOMS}
    imported = {name: graph.find_modules_directly_imported_by(name) & own for name in own}
    assert len(list(TopologicalSorter(imported).static_order())) > len(ROOMS)
