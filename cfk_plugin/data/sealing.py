"""A sealed population: what it knows as plain values, in one file of numbers and JSON with a seal."""

from __future__ import annotations

import hmac
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.domain import Domain, keyed_digest
from cfk_plugin.data.schema import Attribute, Hierarchy, Schema
from cfk_plugin.errors import BundleError, PopulationError

# What a sealed population knows, as plain values that JSON can hold, and back.

_MISSING: dict[str, Any] = {"nan": np.nan, "None": None, "<NA>": pd.NA, "NaT": pd.NaT}


class Sealed(NamedTuple):
    """What else was sealed together with a population: plain facts, such as the policy, and arrays of numbers."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def __repr__(self) -> str:
        """Show names, never a value."""
        return f"Sealed({', '.join([*self.facts, *self.arrays])})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: quasi-identifiers are among the facts."""
        raise PopulationError("what was sealed with a population holds values of rows and refuses to be pickled")


class Counts(NamedTuple):
    """A population without its rows.

    Domains of quasi-identifiers have their values, those of private attributes none. ``order_key`` is the key of the
    order within crowded cells where it is no secret, else None.
    """

    schema: Schema
    domains: Mapping[str, Domain]
    cells: NDArray[np.int32]
    people: NDArray[np.int64]
    fingerprint: str
    order_key: bytes | None

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain facts and arrays of numbers."""
        quasi = self.schema.quasi_identifiers
        facts = {
            "schema": schema_to_plain(self.schema),
            "domains": {name: domain_to_plain(d, values=name in quasi) for name, d in self.domains.items()},
            "fingerprint": self.fingerprint,
            "order_key": None if self.order_key is None else self.order_key.hex(),
        }
        return facts, {"cells": self.cells, "people": self.people}

    @classmethod
    def from_plain(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Counts:
        """Return the population of `to_plain`."""
        schema = schema_from_plain(facts["schema"])
        domains = {name: domain_from_plain(schema[name], known) for name, known in facts["domains"].items()}
        key = None if facts["order_key"] is None else bytes.fromhex(facts["order_key"])
        return cls(schema, domains, arrays["cells"], arrays["people"], facts["fingerprint"], key)


def schema_to_plain(schema: Schema) -> list[dict[str, Any]]:
    """Return the declarations of a schema."""
    return [{f.name: _plain(getattr(a, f.name)) for f in fields(a)} for a in schema.attributes]


def schema_from_plain(declared: list[dict[str, Any]]) -> Schema:
    """Return the schema of `schema_to_plain`."""
    return Schema(tuple(_attribute(given) for given in declared))


def domain_to_plain(domain: Domain, *, values: bool) -> dict[str, Any]:
    """Return what is known of a domain: always its type, its values only if asked for."""
    facts: dict[str, Any] = {
        "dtype": "object" if isinstance(domain.dtype, pd.CategoricalDtype) else str(domain.dtype),
        "has_missing": domain.has_missing,
        "is_date": domain.is_date,
    }
    if values:
        facts["missing"] = str(domain.missing)
        facts["values"] = [_scalar(value) for value in domain.values.tolist()]
        facts["originals"] = [_scalar(value) for value in domain.originals.tolist()]
        facts["categorical"] = isinstance(domain.dtype, pd.CategoricalDtype)
    return facts


def domain_from_plain(attribute: Attribute, facts: Mapping[str, Any]) -> Domain:
    """Return the domain of `domain_to_plain`; without values one that takes any."""
    dtype = types.pandas_dtype(facts["dtype"])
    if "values" not in facts:
        return Domain.unlisted(attribute, dtype, has_missing=facts["has_missing"], is_date=facts["is_date"])
    numeric = attribute.kind == "numeric"
    values = np.array(facts["values"], dtype=np.float64 if numeric else object)
    originals = np.empty(len(facts["originals"]), dtype=object)
    originals[:] = facts["originals"]
    kind = pd.CategoricalDtype(facts["originals"]) if facts["categorical"] else dtype
    missing = _MISSING.get(facts["missing"], np.nan)
    return Domain(attribute, values, originals, kind, missing, facts["has_missing"], facts["is_date"])


def _attribute(given: Mapping[str, Any]) -> Attribute:
    settings: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
    if (tree := settings["hierarchy"]) is not None:
        arrays = {name: np.array(tree[name], dtype=np.int32) for name in ("low", "high", "parent")}
        settings["hierarchy"] = Hierarchy(tuple(tree["leaves"]), tuple(tree["labels"]), **arrays)
    return Attribute(**settings)


def _plain(value: Any) -> Any:
    if isinstance(value, Hierarchy):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _scalar(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (bool, int, float, str)) else str(value)


# Bundles: one file of plain numbers and JSON with a seal, readable without pickle.

BUNDLE_VERSION = 2  # 1 had cells and keyed numbers in the table's order of columns, 2 has them in that of their names
_FACTS, _SEAL = "facts.json", "seal.json"
_CHECK = b"cfk bundle key"
_NO_KEY = b"cfk bundle without a key"


def write_bundle(path: str | Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], key: bytes) -> None:
    """Write a bundle; an existing file is replaced as a whole or not at all."""
    members = {_FACTS: json.dumps({"version": BUNDLE_VERSION, **facts}, sort_keys=True).encode()}
    for name, array in arrays.items():
        text = io.BytesIO()
        np.save(text, array, allow_pickle=False)
        members[f"{name}.npy"] = text.getvalue()
    seal = {"digest": _digest(key, members), "key": keyed_digest(key, [_CHECK]).hex() if key else None}
    target = Path(path)
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in {**members, _SEAL: json.dumps(seal).encode()}.items():
                bundle.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        Path(draft).replace(target)
    except OSError as error:
        raise BundleError(f"the bundle cannot be written: {type(error).__name__}; check the folder") from None


def read_bundle(path: str | Path | IO[bytes], key: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle and check its seal."""
    try:
        with zipfile.ZipFile(path) as bundle:
            members = {name: bundle.read(name) for name in bundle.namelist()}
        seal = json.loads(members.pop(_SEAL))
    except FileNotFoundError:
        raise BundleError("there is no bundle at this path; write one with seal()") from None
    except Exception:  # noqa: BLE001 - whatever a damaged file leads to
        raise BundleError("the file is no bundle, or it is damaged; seal the population again") from None
    if seal.get("key") is not None and not key:
        raise BundleError("the bundle was sealed with a key; give it, or set CFK_KEY")
    if seal.get("key") != (keyed_digest(key, [_CHECK]).hex() if key else None):
        raise BundleError("the bundle was sealed with another key, or without one; give the key that it has")
    if not hmac.compare_digest(str(seal.get("digest")), _digest(key, members)):
        raise BundleError("the bundle was changed after it was sealed; seal the population again")
    return _decoded(members)


def _decoded(members: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    facts = json.loads(members[_FACTS])
    if facts.get("version") != BUNDLE_VERSION:
        raise BundleError(f"the bundle has another format than {BUNDLE_VERSION}; upgrade cfk_plugin, or seal again")
    arrays = {
        name.removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
        for name, content in members.items()
        if name != _FACTS
    }
    return facts, arrays


def _digest(key: bytes, members: Mapping[str, bytes]) -> str:
    parts: list[bytes] = []
    for name in sorted(members):
        parts += [len(name).to_bytes(8, "big"), name.encode(), len(members[name]).to_bytes(8, "big"), members[name]]
    return keyed_digest(key or _NO_KEY, parts).hex()
