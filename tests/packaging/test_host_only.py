"""What contains rows shows counts only and is not pickled."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import cfk_plugin
from cfk_plugin.errors import HostOnly, InputError


def kinds_of(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_dataclass_of_rows_hides_its_fields() -> None:
    """A decorator without ``repr=False`` would show them."""
    for module in pkgutil.walk_packages(cfk_plugin.__path__, "cfk_plugin."):
        if not module.name.endswith(("__main__", "from_code")):
            importlib.import_module(module.name)
    kinds = [kind for kind in kinds_of(HostOnly) if kind.__module__.startswith("cfk_plugin")]
    assert len(kinds) > 5
    for kind in kinds:
        settings = vars(kind).get("__dataclass_params__")
        assert settings is None or not settings.repr, kind.__name__


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_rows_stay_in_the_process(leave: Any) -> None:
    """Only a count is shown, and there is neither a pickle nor a copy."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Kept(HostOnly):
        ages: tuple[int, ...]

        def __len__(self) -> int:
            return len(self.ages)

    kept = Kept((24, 27))
    assert repr(kept) == "Kept(2 rows)"
    with pytest.raises(InputError, match="refuses to be pickled"):
        leave(kept)
