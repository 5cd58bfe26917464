"""The file of a catalogue: what is in it, and which files are refused."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfk_plugin import KAnonymizer
from cfk_plugin.errors import BundleError, InputError, ModelError
from cfk_plugin.protection.catalogue_file import CatalogueFile
from worlds import CANARY, Bank, World

KEY = b"a key"


@pytest.fixture(scope="module")
def catalogue(residents: World) -> Any:
    return residents.anonymizer.catalogue_


def test_loaded_catalogue_knows_its_origin(
    catalogue: Any, residents: World, tmp_path: Path
) -> None:
    """Another process has the schema, the notes and the entries, and not the seed."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, key=KEY, notes={"ticket": 12})
    loaded = KAnonymizer.load(path, residents.model, key=KEY)
    assert loaded.schema_ == catalogue.schema
    assert loaded.catalogue_.notes == {"ticket": 12}
    assert [str(entry) for entry in loaded.catalogue_.published()] == [
        str(entry) for entry in catalogue.published()
    ]
    assert loaded.fingerprint_ == catalogue.fingerprint
    assert loaded.n_people_ == len(residents.table)
    environment = loaded.explain(residents.refused.head(1)).about.environment
    assert environment is not None
    assert environment["seed"] is None


def test_equal_catalogues_are_equal_files(catalogue: Any, residents: World, tmp_path: Path) -> None:
    """A file has no time and no random number; only its owner may read it."""
    for name, saved in (("a", catalogue), ("b", residents.fit().catalogue_)):
        saved.save(tmp_path / name, key=KEY)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


@pytest.fixture(params=["object", "category"])
def rare(request: pytest.FixtureRequest, residents: World) -> World:
    """Return residents of whom one has a job, and two a salary, that no one else has."""
    table = residents.table
    is_first = table.index == 0
    table = table.assign(
        job=table["job"].mask(is_first, "organist").astype(request.param),
        salary=table["salary"].mask(table.index < 2, 71_253),
    )
    return replace(residents, table=table)


def test_file_contains_no_rare_value(rare: World, tmp_path: Path) -> None:
    """Neither a job nor a salary of fewer than k people is in the file, nor a name."""
    path = tmp_path / "loans.cfk"
    rare.anonymizer.catalogue_.save(path)
    with zipfile.ZipFile(path) as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert b"salary" in contents
    for text in ("organist", CANARY):
        assert text.encode() not in contents
    numbers = np.concatenate(list(CatalogueFile.read(path).arrays.values()), axis=None)
    assert 71_253 not in numbers


def test_rare_category_is_recognised(rare: World, tmp_path: Path) -> None:
    """A query with it has the answer that it had before; one that no one has is unknown."""
    anonymizer = rare.anonymizer
    anonymizer.catalogue_.save(tmp_path / "loans.cfk")
    loaded = KAnonymizer.load(tmp_path / "loans.cfk", rare.model)
    queries = rare.refused.head(2).assign(job=["organist", "dancer"])
    answers = loaded.explain(queries)
    assert [entry.status for entry in answers] == ["released", "withheld"]
    assert answers[0] == anonymizer.explain(queries)[0]


@pytest.mark.parametrize("key", [b"", KEY])
def test_changed_file_is_refused(catalogue: Any, tmp_path: Path, key: bytes) -> None:
    """A single changed byte anywhere breaks the seal, and so does a byte more or less."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, key=key)
    whole = path.read_bytes()
    changes = [whole[:100], whole[:-1], whole + b"x", b"x" + whole, b""]
    for position in range(0, len(whole), len(whole) // 100):
        changes.append(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
    for content in changes:
        path.write_bytes(content)
        with pytest.raises(BundleError):
            CatalogueFile.read(path, key)


@pytest.mark.parametrize(
    ("written", "read", "message"),
    [(KEY, b"", "with a key"), (b"", KEY, "without a key"), (KEY, b"other", "another key")],
)
def test_file_needs_its_key(
    catalogue: Any, tmp_path: Path, written: bytes, read: bytes, message: str
) -> None:
    """The message says whether the key or its absence is the problem."""
    catalogue.save(tmp_path / "loans.cfk", key=written)
    with pytest.raises(BundleError, match=message):
        CatalogueFile.read(tmp_path / "loans.cfk", read)


def test_missing_file_is_refused(catalogue: Any, residents: World, tmp_path: Path) -> None:
    """Paths that cannot be read or written are named as such."""
    with pytest.raises(BundleError, match="no catalogue at this path"):
        KAnonymizer.load(tmp_path / "none.cfk", residents.model)
    with pytest.raises(InputError, match="cannot be written"):
        catalogue.save(tmp_path / "no folder" / "loans.cfk")


def test_other_model_is_refused(catalogue: Any, tmp_path: Path) -> None:
    """A model that disagrees about an entry is not the one of the catalogue."""
    catalogue.save(tmp_path / "loans.cfk")
    with pytest.raises(ModelError, match="differs"):
        KAnonymizer.load(tmp_path / "loans.cfk", Bank(180))
