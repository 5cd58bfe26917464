"""What holds rows shows counts alone and is not pickled, whatever decorator is put around it."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from dataclasses import dataclass, is_dataclass

import pytest

import cfk_plugin
from cfk_plugin.errors import HostOnly, InputError


def every_kind_of(base: type) -> list[type]:
    return [kind for known in base.__subclasses__() for kind in (known, *every_kind_of(known))]


def test_no_dataclass_that_holds_rows_has_a_repr_that_shows_its_fields() -> None:
    for module in pkgutil.walk_packages(cfk_plugin.__path__, "cfk_plugin."):
        if not module.name.endswith(("__main__", "from_code")):
            importlib.import_module(module.name)
    kinds = [kind for kind in every_kind_of(HostOnly) if kind.__module__.startswith("cfk_plugin")]
    assert len(kinds) > 5
    for kind in kinds:
        own = vars(kind).get("__dataclass_params__")
        assert not is_dataclass(kind) or own is None or not own.repr, (
            f"{kind.__name__}: say repr=False"
        )


def test_a_holder_shows_counts_and_refuses_to_be_pickled_and_copied() -> None:
    @dataclass(frozen=True, slots=True, repr=False)
    class Kept(HostOnly):
        ages: tuple[int, ...]

        def __len__(self) -> int:
            return len(self.ages)

    kept = Kept((24, 27))
    assert repr(kept) == "Kept(2 rows)"
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            InputError, match="Kept stays in the data holder's process and refuses to be pickled"
        ):
            refused(kept)
