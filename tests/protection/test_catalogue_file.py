"""The file of a catalogue: what is in it, and which files are refused."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import BundleError, InputError, ModelError
from cfk_plugin.protection.catalogue_file import CatalogueFile

if TYPE_CHECKING:
    from pathlib import Path

K = 3
KEY = b"a key"
TOWNS = ["Aa", "Bree", "Ceel"]


def residents() -> pd.DataFrame:
    """Return 60 residents; one has a job that no one else has, and incomes are rare."""
    jobs = ["clerk", "nurse"] * 29 + ["organist", "clerk"]
    return pd.DataFrame(
        {
            "age": [20 + i % 12 for i in range(60)],
            "town": TOWNS * 20,
            "income": [float(i % 20) for i in range(58)] + [71.25, 83.5],
            "job": jobs,
        }
    )


def has_loan(rows: pd.DataFrame) -> Any:
    return rows["income"] > 8


def catalogue_of(key: bytes | None = None) -> Any:
    schema = Schema.from_frame(residents(), quasi_identifiers=["age", "town"])
    population = Population.from_frame(residents(), schema, key=key)
    return KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, has_loan, True).catalogue_


@pytest.fixture(scope="module")
def catalogue() -> Any:
    return catalogue_of()


def test_loaded_catalogue_answers_alike(catalogue: Any, tmp_path: Path) -> None:
    """Another process has the schema, the notes and the same explanations."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, key=KEY, notes={"ticket": 12})
    loaded = KAnonymizer.load(path, has_loan, key=KEY)
    assert loaded.schema_ == catalogue.schema
    assert loaded.catalogue_.notes == {"ticket": 12}
    assert [str(entry) for entry in loaded.catalogue_.published()] == [
        str(entry) for entry in catalogue.published()
    ]
    assert loaded.fingerprint_ == catalogue.fingerprint
    assert loaded.n_people_ == 60


def test_loaded_catalogue_records_no_seed(catalogue: Any, tmp_path: Path) -> None:
    """The file does not say with which seed it was fitted."""
    catalogue.save(tmp_path / "loans.cfk", key=KEY)
    loaded = KAnonymizer.load(tmp_path / "loans.cfk", has_loan, key=KEY)
    environment = loaded.explain(residents().head(1)).about.environment
    assert environment is not None
    assert environment["seed"] is None


def test_equal_catalogues_are_equal_files(catalogue: Any, tmp_path: Path) -> None:
    """A file has no time and no random number; only its owner may read it."""
    for name, saved in (("a", catalogue), ("b", catalogue_of(b""))):
        saved.save(tmp_path / name, key=KEY)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_file_contains_no_rare_value(catalogue: Any, tmp_path: Path) -> None:
    """Neither a job nor an income of fewer than k people is in the file."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path)
    with zipfile.ZipFile(path) as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert b"clerk" in contents
    assert b"organist" not in contents
    numbers = np.concatenate(list(CatalogueFile.read(path).arrays.values()), axis=None)
    assert not np.isin([71.25, 83.5], numbers).any()


@pytest.mark.parametrize("key", [b"", KEY])
def test_changed_file_is_refused(catalogue: Any, tmp_path: Path, key: bytes) -> None:
    """A single changed byte anywhere breaks the seal, and so does a byte more or less."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, key=key)
    whole = path.read_bytes()
    changes = [whole[:100], whole[:-1], whole + b"x", b"x" + whole, b""]
    for position in range(0, len(whole), 41):
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


def test_missing_file_is_refused(catalogue: Any, tmp_path: Path) -> None:
    """Paths that cannot be read or written are named as such."""
    with pytest.raises(BundleError, match="no catalogue at this path"):
        KAnonymizer.load(tmp_path / "none.cfk", has_loan)
    with pytest.raises(InputError, match="cannot be written"):
        catalogue.save(tmp_path / "no folder" / "loans.cfk")


def test_other_model_is_refused(catalogue: Any, tmp_path: Path) -> None:
    """A model that disagrees about an entry is not the one of the catalogue."""
    catalogue.save(tmp_path / "loans.cfk")
    with pytest.raises(ModelError, match="saved catalogue"):
        KAnonymizer.load(tmp_path / "loans.cfk", lambda rows: rows["income"] > 100)
