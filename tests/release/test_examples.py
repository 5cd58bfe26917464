"""Examples in the docstrings of public names."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import pytest

import cfk_plugin


def examples() -> Iterator[doctest.DocTest]:
    """Yield the examples of each public name and of its methods."""
    for name in cfk_plugin.__all__:
        thing = getattr(cfk_plugin, name)
        names = dict(vars(inspect.getmodule(thing)))
        for test in doctest.DocTestFinder().find(thing, name, None, names):
            if test.examples:
                yield test


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_example_prints_its_output(example: doctest.DocTest) -> None:
    """Spaces may differ, as in tables."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example).failed == 0
