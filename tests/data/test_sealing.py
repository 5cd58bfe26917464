"""Sealed populations: what was written comes back, and whatever was changed, lost or written by
others is refused.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from cfk_plugin import Population, PrivacyPolicy, Schema
from cfk_plugin.errors import BundleError, CFKError
from make_sealed import HERE, KEYS, protected

STORED = json.loads((HERE / "sealed.json").read_text())
TABLE = pd.DataFrame({"age": range(20, 32), "städte": list("abc") * 4, "pay": range(12)})


def people(key: bytes | None) -> Population:
    return Population.from_frame(
        TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age", "städte"]), key=key
    )


@pytest.fixture(params=[None, b"a secret"], ids=["no key", "key"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes | None]:
    path = tmp_path / "population.cfk"
    people(request.param).seal(path)
    return path, request.param


def rewrite(path: Path, name: str, content: bytes | None) -> None:
    """Replace a member of the file, add one, or leave one out."""
    with zipfile.ZipFile(path) as file:
        members = {each: file.read(each) for each in file.namelist()}
    members[name] = content or b""
    with zipfile.ZipFile(path, "w") as file:
        for each, text in members.items():
            if content is not None or each != name:
                file.writestr(each, text)


@pytest.mark.parametrize("name", STORED)
def test_a_bundle_of_before_protects_as_it_did(name: str) -> None:
    opened = Population.open(Path(HERE / f"{name}.cfk"), key=KEYS[name.rpartition("_")[2]])
    found = json.loads(json.dumps(protected(opened)))
    stored = json.loads(json.dumps(STORED[name]))
    policy = opened.policy or PrivacyPolicy()
    for entry in found["released"]:
        certificate = entry["certificate"]
        if not name.startswith("catalogue"):  # certificates of before did not say
            assert certificate.pop("moved", []) == []
        # nor what is unchanged, in the place of which entries said what was moved
        assert certificate.pop("unchanged") == entry.pop("unchanged", [])
        assert tuple(certificate.pop("not_stopped")) == policy.not_stopped
    for entry in stored["released"]:
        entry.pop("moved", None)
    assert found == stored
    assert len(STORED[name]["released"]) >= 2
    regions = str([stored["regions"] for stored in STORED.values()])
    assert "interval" in regions
    assert "missing" in regions


def test_what_was_written_comes_back_and_is_the_same_file_again(
    sealed: tuple[Path, bytes], tmp_path: Path
) -> None:
    path, key = sealed
    opened = Population.open(path, key=key)
    assert opened.schema == people(key).schema
    assert (opened.n_people, opened.fingerprint) == (12, people(key).fingerprint)
    people(key).seal(tmp_path / "again.cfk")
    assert (tmp_path / "again.cfk").read_bytes() == path.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["again.cfk", "population.cfk"]


def test_every_damaged_byte_and_every_part_of_a_file_is_noticed(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole, print_, tried, unnoticed = path.read_bytes(), people(key).fingerprint, 0, 0
    for at in range(0, len(whole), 17):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        tried += 1
        try:
            opened = Population.open(path, key=key)
        except BundleError:
            continue
        unnoticed += 1  # a byte of the archive that holds no content, such as a time
        assert opened.fingerprint == print_
    assert unnoticed < tried / 2
    for size in (0, 1, 100, -1):
        path.write_bytes(whole[:size])
        with pytest.raises(BundleError, match="damaged"):
            Population.open(path, key=key)


def test_changed_lost_and_added_content_is_refused(sealed: tuple[Path, bytes]) -> None:
    path, key = sealed
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        array = next(name for name in file.namelist() if name.endswith(".npy"))
        facts = json.loads(file.read("facts.json"))
    for name, content in (
        ("facts.json", json.dumps(facts).encode() + b" "),
        (array, None),
        ("more.npy", b"x"),
    ):
        path.write_bytes(whole)
        rewrite(path, name, content)
        with pytest.raises(BundleError, match="changed"):
            Population.open(path, key=key)


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
