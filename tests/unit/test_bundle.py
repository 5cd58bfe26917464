"""Bundles: what was written comes back, and whatever was changed, lost or written by others is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cfk_plugin.data import sealing as bundle
from cfk_plugin.errors import BundleError

FACTS = {"policy": {"k": 10}, "names": ["age", "städte"]}
ARRAYS = {"cells": np.arange(6, dtype=np.int32).reshape(3, 2), "last": np.array([2**64 - 1, 0], dtype=np.uint64)}


@pytest.fixture(params=[b"", b"a secret"], ids=["no key", "key"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "population.cfk"
    bundle.write_bundle(path, FACTS, ARRAYS, request.param)
    return path, request.param


def rewrite(path: Path, **changed: bytes | None) -> None:
    """Replace members of the file, or leave them out."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members |= {name.replace("_", "."): content for name, content in changed.items() if content is not None}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            if changed.get(name.replace(".", "_"), b"") is not None:
                file.writestr(name, content)


def test_what_was_written_comes_back(sealed: tuple[Path, bytes]) -> None:
    facts, arrays = bundle.read_bundle(*sealed)
    assert facts == {**FACTS, "version": bundle.BUNDLE_VERSION}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_same_content_gives_the_same_file(sealed: tuple[Path, bytes], tmp_path: Path) -> None:
    path, key = sealed
    bundle.write_bundle(tmp_path / "again.cfk", FACTS, ARRAYS, key)
    assert (tmp_path / "again.cfk").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.cfk", "population.cfk"]


def test_every_damaged_byte_is_noticed(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole = path.read_bytes()
    unnoticed = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            facts, arrays = bundle.read_bundle(path, key)
        except BundleError:
            continue
        unnoticed += 1  # a byte of the archive that holds no content, such as a time
        assert facts == {**FACTS, "version": bundle.BUNDLE_VERSION}
        assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())
    assert unnoticed < len(whole) / 2


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_part_of_a_file_is_refused(sealed: tuple[Path, bytes], size: int) -> None:
    path, key = sealed
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BundleError, match="damaged"):
        bundle.read_bundle(path, key)


def test_changed_content_is_refused_whatever_the_archive_says(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    rewrite(path, facts_json=json.dumps({"version": 1, "policy": {"k": 2}}).encode())
    with pytest.raises(BundleError, match="changed after it was sealed"):
        bundle.read_bundle(path, key)


def test_a_lost_or_added_member_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole = path.read_bytes()
    rewrite(path, cells_npy=None)
    with pytest.raises(BundleError, match="changed"):
        bundle.read_bundle(path, key)
    path.write_bytes(whole)
    rewrite(path, more_npy=b"x")
    with pytest.raises(BundleError, match="changed"):
        bundle.read_bundle(path, key)


def test_another_or_no_key_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    with pytest.raises(BundleError, match="another key"):
        bundle.read_bundle(path, b"another one")
    if key:
        with pytest.raises(BundleError, match="CFK_KEY"):
            bundle.read_bundle(path, b"")


def test_who_has_no_key_cannot_seal_anew(tmp_path: Path) -> None:
    bundle.write_bundle(tmp_path / "a.cfk", FACTS, ARRAYS, b"a secret")
    bundle.write_bundle(tmp_path / "forged.cfk", {"policy": {"k": 2}}, ARRAYS, b"")
    with pytest.raises(BundleError, match="without one"):
        bundle.read_bundle(tmp_path / "forged.cfk", b"a secret")


def test_a_newer_format_is_refused(sealed: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = sealed
    monkeypatch.setattr(bundle, "BUNDLE_VERSION", bundle.BUNDLE_VERSION + 1)
    bundle.write_bundle(path, FACTS, ARRAYS, key)
    monkeypatch.undo()
    with pytest.raises(BundleError, match="upgrade"):
        bundle.read_bundle(path, key)


def test_pickles_are_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        bundle.write_bundle(tmp_path / "a.cfk", FACTS, {"rows": np.array([{}], dtype=object)}, b"")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle at this path"):
        bundle.read_bundle(tmp_path / "none.cfk", b"")
    with pytest.raises(BundleError, match="cannot be written"):
        bundle.write_bundle(tmp_path / "no folder" / "a.cfk", FACTS, ARRAYS, b"")
