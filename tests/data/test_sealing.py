"""Sealed catalogues: what was written comes back, and whatever was changed, lost or written by
others is refused.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.sealing import _seal_of
from cfk_plugin.errors import BundleError, CFKError

TABLE = pd.DataFrame(
    {"age": [*range(20, 32)] * 3, "städte": list("abc") * 12, "pay": [1, 2, 3] * 12}
)


def people(key: bytes | None) -> KAnonymizer:
    """Return what can be sealed: a catalogue of these people."""
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age", "städte"])
    population = Population.from_frame(TABLE, schema, key=key)
    policy = PrivacyPolicy(k=3)
    return KAnonymizer(policy=policy).fit(population, lambda rows: rows["pay"] > 1, True)


@pytest.fixture(params=[None, b"a secret"], ids=["no key", "key"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes | None]:
    path = tmp_path / "catalogue.cfk"
    people(request.param).seal(path)
    return path, request.param


def members_of(bundle: bytes) -> dict[str, bytes]:
    """Return what is in the archive of a bundle, which its seal precedes."""
    with zipfile.ZipFile(io.BytesIO(bundle.partition(b"\n")[2])) as file:
        return {name: file.read(name) for name in file.namelist()}


def archive_of(members: dict[str, bytes], comment: bytes = b"") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        file.comment = comment
        for name, content in members.items():
            file.writestr(name, content)
    return written.getvalue()


def test_what_was_written_comes_back_and_is_the_same_file_again(
    sealed: tuple[Path, bytes], tmp_path: Path
) -> None:
    path, key = sealed
    opened = Population.open(path, key=key)
    original = people(key).population_
    assert opened.schema == original.schema
    assert (opened.n_people, opened.fingerprint) == (36, original.fingerprint)
    people(key).seal(tmp_path / "again.cfk")
    assert (tmp_path / "again.cfk").read_bytes() == path.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["again.cfk", "catalogue.cfk"]


def test_a_file_with_any_other_byte_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        with pytest.raises(BundleError):
            Population.open(path, key=key)
    for content in (whole[:0], whole[:1], whole[:100], whole[:-1], whole + b"x", b"x" + whole):
        path.write_bytes(content)
        with pytest.raises(BundleError, match=r"damaged|changed"):
            Population.open(path, key=key)
    path.write_bytes(whole)
    assert Population.open(path, key=key).fingerprint == people(key).population_.fingerprint


def test_changed_lost_and_added_content_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole = path.read_bytes()
    seal = whole.partition(b"\n")[0]
    members = members_of(whole)
    array = next(name for name in members if name.endswith(".npy"))
    facts = json.loads(members["facts.json"])
    without_array = {name: content for name, content in members.items() if name != array}
    for archive in (
        archive_of({**members, "facts.json": json.dumps(facts).encode() + b" "}),
        archive_of(without_array),
        archive_of({**members, "more.npy": b"x"}),
        archive_of(members, comment=b"a note"),
    ):
        path.write_bytes(seal + b"\n" + archive)
        with pytest.raises(BundleError, match="changed"):
            Population.open(path, key=key)


def test_a_seal_that_is_written_otherwise_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    line, _, archive = path.read_bytes().partition(b"\n")
    seal = json.loads(line)
    for other in (
        json.dumps(seal, indent=None, separators=(",", ":")).encode(),
        json.dumps({**seal, "note": "x"}).encode(),
        json.dumps({**seal, "digest": seal["digest"].upper()}).encode(),
        line + b"\r",
        line + b" " * 1_000,
    ):
        path.write_bytes(other + b"\n" + archive)
        with pytest.raises(BundleError, match="changed"):
            Population.open(path, key=key)


def test_without_a_key_anybody_can_seal_a_damaged_archive_which_is_refused(tmp_path: Path) -> None:
    for archive in (b"", b"no archive", archive_of({"facts.json": b"{"}), archive_of({})):
        (tmp_path / "sealed.cfk").write_bytes(_seal_of(archive, b"") + archive)
        with pytest.raises(BundleError, match="cannot be read"):
            Population.open(tmp_path / "sealed.cfk")


def test_an_earlier_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sealed.cfk").write_bytes(archive_of({"facts.json": b"{}", "seal.json": b"{}"}))
    with pytest.raises(BundleError, match="before the first release"):
        Population.open(tmp_path / "sealed.cfk")


def test_another_key_and_none_are_refused_and_nobody_seals_without_it(tmp_path: Path) -> None:
    people(b"a secret").seal(tmp_path / "sealed.cfk")
    people(None).seal(tmp_path / "forged.cfk")
    for name, key, said in (
        ("sealed", b"another one", "another key"),
        ("sealed", None, "CFK_KEY"),
        ("forged", b"a secret", "without one"),
    ):
        with pytest.raises(BundleError, match=said):
            Population.open(tmp_path / f"{name}.cfk", key=key)


def test_a_newer_format_and_paths_that_are_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("cfk_plugin.data.sealing.BUNDLE_VERSION", 1_000)
        people(None).seal(tmp_path / "newer.cfk")
    with pytest.raises(BundleError, match="upgrade"):
        Population.open(tmp_path / "newer.cfk")
    with pytest.raises(BundleError, match="no bundle at this path"):
        Population.open(tmp_path / "none.cfk")
    with pytest.raises(CFKError, match="cannot be written"):
        people(None).seal(tmp_path / "no folder" / "a.cfk")
