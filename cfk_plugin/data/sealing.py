"""A sealed catalogue: what it knows as plain values, in one file with a seal over all of it."""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.encoded_table import divided
from cfk_plugin.data.schema import Hierarchy, Schema, SchemaAttribute
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import BundleError, HostOnly

Arrays = Mapping[str, NDArray[Any]]


_MISSING: dict[str, Any] = {"nan": np.nan, "None": None, "<NA>": pd.NA, "NaT": pd.NaT}


def to_plain(
    schema: Schema, domains: Mapping[str, Domain], listed: Collection[str]
) -> dict[str, Any]:
    """Return schema and domains as values that JSON takes; of attributes that are not listed only
    the type.
    """
    return {
        "schema": [_plain_attribute(attribute) for attribute in schema.attributes],
        "wording": schema.wording.to_plain(),
        "domains": {name: _plain_domain(d, name in listed) for name, d in domains.items()},
    }


def from_plain(facts: Mapping[str, Any]) -> tuple[Schema, dict[str, Domain]]:
    attributes = tuple(map(_attribute, facts["schema"]))
    schema = Schema(attributes, Wording.from_plain(facts["wording"]))
    domains = {
        name: _domain(schema[name], facts_of_domain)
        for name, facts_of_domain in facts["domains"].items()
    }
    return schema, domains


def _plain_attribute(attribute: SchemaAttribute) -> dict[str, Any]:
    settings = asdict(attribute)
    if not attribute.never_advised:
        del settings["never_advised"]
    return settings


def _attribute(facts: Mapping[str, Any]) -> SchemaAttribute:
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()
    }
    tree = settings["hierarchy"]
    if tree is not None:
        arrays = {name: np.array(tree[name], dtype=np.int32) for name in ("low", "high", "parent")}
        settings["hierarchy"] = Hierarchy(tuple(tree["leaves"]), tuple(tree["titles"]), **arrays)
    return SchemaAttribute(**settings)


def _plain_domain(domain: Domain, has_values: bool) -> dict[str, Any]:
    is_categorical = isinstance(domain.dtype, pd.CategoricalDtype)
    facts: dict[str, Any] = {
        "dtype": "object" if is_categorical else str(domain.dtype),
        "has_missing": domain.has_missing,
        "is_date": domain.is_date,
    }
    if has_values:
        facts["missing"] = str(domain.missing)
        facts["values"] = [_scalar(value) for value in domain.values.tolist()]
        facts["originals"] = [_scalar(value) for value in domain.originals.tolist()]
        facts["categorical"] = is_categorical
    return facts | ({"open": True} if has_values and domain.is_open else {})


def _domain(attribute: SchemaAttribute, facts: Mapping[str, Any]) -> Domain:
    dtype = types.pandas_dtype(facts["dtype"])
    has_missing = facts["has_missing"]
    is_date = facts["is_date"]
    if "values" not in facts:
        return Domain.unlisted(attribute, dtype, has_missing=has_missing, is_date=is_date)
    type_of_values = np.float64 if attribute.kind == "numeric" else object
    values = np.array(facts["values"], dtype=type_of_values)
    originals = np.empty(len(facts["originals"]), dtype=object)
    originals[:] = facts["originals"]
    dtype = pd.CategoricalDtype(facts["originals"]) if facts["categorical"] else dtype
    missing = _MISSING.get(facts["missing"], np.nan)
    return Domain(
        attribute, values, originals, dtype, missing, has_missing, is_date, facts.get("open", False)
    )


def _scalar(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (bool, int, float, str)) else str(value)


BUNDLE_VERSION = 1
_BUNDLE = "cfk bundle"  # says in the first line what the file is
_FACTS = "facts.json"
_CHECK = b"cfk bundle key"
_NO_KEY = b"cfk bundle without a key"
_LONGEST_SEAL = 400  # bytes


def write_bundle(path: str | Path, facts: Mapping[str, Any], arrays: Arrays, key: bytes) -> None:
    """Write a bundle: a line with the seal, and an archive of facts and arrays.

    An existing file is replaced as a whole or not at all.
    """
    text = json.dumps(facts, sort_keys=True, default=np.ndarray.tolist)
    members = {_FACTS: text.encode()}
    for name, array in arrays.items():
        written = io.BytesIO()
        np.save(written, array, allow_pickle=False)
        members[f"{name}.npy"] = written.getvalue()
    archive = _archive_of(members)
    target = Path(path)
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_seal_of(archive, key))
                file.write(archive)
            Path(draft).replace(target)
        finally:
            Path(draft).unlink(missing_ok=True)  # it has people's quasi-identifiers
    except OSError as error:
        raise BundleError(
            f"the bundle cannot be written: {type(error).__name__}; check the folder"
        ) from None


def _archive_of(members: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in members.items():
            bundle.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return archive.getvalue()


def read_bundle(
    path: str | Path | IO[bytes], key: bytes
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle; nothing of its archive is looked at before the seal is found to be right."""
    content = _content_of(path)
    line, _, archive = content.partition(b"\n")
    _check_seal(line[:_LONGEST_SEAL], key)
    # The whole line is compared, so that it cannot be written in another way either.
    if not hmac.compare_digest(line + b"\n", _seal_of(archive, key)):
        raise BundleError("the bundle was changed after it was sealed; seal the catalogue again")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
            members = {name: bundle.read(name) for name in bundle.namelist()}
        facts = json.loads(members.pop(_FACTS))
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(member), allow_pickle=False)
            for name, member in members.items()
        }
    except Exception:  # noqa: BLE001 - the seal is right, and the content may still be nonsense
        raise BundleError("the bundle cannot be read; seal the catalogue again") from None
    return facts, arrays


def _content_of(path: str | Path | IO[bytes]) -> bytes:
    try:
        return Path(path).read_bytes() if isinstance(path, (str, Path)) else path.read()
    except FileNotFoundError:
        raise BundleError("there is no bundle at this path; write one with seal()") from None
    except OSError as error:
        raise BundleError(
            f"the bundle cannot be read: {type(error).__name__}; check the path"
        ) from None


def _check_seal(line: bytes, key: bytes) -> None:
    """Refuse a line that cannot be checked: no seal, another format, or another key."""
    seal = None
    with contextlib.suppress(ValueError):
        seal = json.loads(line)
    if not isinstance(seal, dict) or seal.get("file") != _BUNDLE:
        raise BundleError(
            "the file is no bundle, is damaged, or was sealed before the first release of"
            " cfk_plugin; seal the catalogue again"
        )
    if seal.get("version") != BUNDLE_VERSION:
        raise BundleError(
            f"the bundle has another format than {BUNDLE_VERSION}; upgrade cfk_plugin, or seal"
            " again"
        )
    if seal.get("key") is not None and not key:
        raise BundleError("the bundle was sealed with a key; give it, or set CFK_KEY")
    if seal.get("key") is None and key:
        raise BundleError(
            "the bundle was sealed without one, and a key was given; seal it again with the key, or"
            " give none"
        )
    if seal.get("key") != _check(key):
        raise BundleError("the bundle was sealed with another key; give the key that it has")


def _seal_of(archive: bytes, key: bytes) -> bytes:
    """Return the first line of a bundle. Without a key anybody can compute it."""
    digest = hmac.digest(key or _NO_KEY, archive, "sha256").hex()
    seal = {
        "file": _BUNDLE,
        "version": BUNDLE_VERSION,
        "key": _check(key),
        "digest": digest,
    }
    return json.dumps(seal).encode() + b"\n"


def _check(key: bytes) -> str | None:
    """Return what tells whether a reader has the right key; None without one."""
    return hmac.digest(key, _CHECK, "sha256").hex() if key else None


@dataclass(frozen=True, eq=False, repr=False)
class BundleContent(HostOnly):
    """What a bundle holds beside the schema and the domains.

    Attributes
    ----------
    arrays : mapping of str to array
        Numbers, by their names in the bundle.
    facts : mapping of str to value
        Values that JSON can hold.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


class SealedRegion(NamedTuple):
    """What is known of a region of a sealed catalogue without rows: people, and floors of other
    counts.
    """

    people: int  # inside
    floor: int  # at least so many are mapped to it, and consistent where `proves` says so
    # sets of cells: if all of one set have the outcome, so do `floor` people
    held: tuple[NDArray[np.int32], ...]
    entries: frozenset[bytes]  # codes of private values with which `floor` people have it

    @property
    def cells(self) -> NDArray[np.int32]:
        return np.concatenate(self.held)

    def proves(self, good: NDArray[np.bool_], private: NDArray[np.int32]) -> bool:
        """Return True if `floor` people have the outcome with some private values; `good`, of shape
        (n_cells,), tells which of `cells` have it.
        """
        parts = divided(good, map(len, self.held))
        return private.tobytes() in self.entries or any(
            len(part) > 0 and bool(part.all()) for part in parts
        )
