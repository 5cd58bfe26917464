"""The file of a catalogue: facts as JSON and arrays of numbers, in one archive with a seal.

The file is a ZIP archive. Its comment is the seal: an HMAC-SHA256 of all bytes before it, under the
data holder's key. Without a key anyone can compute the seal, so it only detects damage.

The file contains the schema and the values of codes: all values of quasi-identifiers, and the
shared values of private columns. For other private categories it contains keyed digests, by which a
query's own category is recognised. If there is no key, an attacker with the file can guess
categories and test them.
"""

from __future__ import annotations

import hmac
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.codes import MISSING, Codes, Column, Floats
from cfk_plugin.data.region import spellings, to_text
from cfk_plugin.data.schema import Hierarchy, Schema, SchemaAttribute
from cfk_plugin.data.values import factorized
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import BundleError, HostOnly, whole_file

_TITLE = b"cfk catalogue "
_VERSION = b"1 "  # of the format
_NO_KEY = b"cfk catalogue without a key"
_KEY_CHECK = b"cfk catalogue key"
_CHECK_LENGTH = 16
_DIGEST_LENGTH = 64
_HEAD_LENGTH = len(_TITLE) + len(_VERSION)
_SEAL_LENGTH = _HEAD_LENGTH + _CHECK_LENGTH + 1 + _DIGEST_LENGTH
_DIGEST_LENGTH_OF_CATEGORY = 32
_FACTS = "facts.json"
_MISSING_VALUES = {"None": None, "nan": np.nan, "<NA>": pd.NA, "NaT": pd.NaT}
_VALUE_TYPES: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the time of all members, so equal contents give equal files


@dataclass(frozen=True, eq=False, repr=False)
class CatalogueFile(HostOnly):
    """The content of a catalogue's file.

    Attributes
    ----------
    facts : mapping of str to JSON-ready values
    arrays : mapping of str to array
    key : bytes
        The data holder's key; empty if there is none.

    Examples
    --------
    A process without the training table reads the file, and makes a model with its codes::

        file = CatalogueFile.read("loans.cfk", key)
        model = Model(file.codes, ...)
    """

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    key: bytes = b""

    @cached_property
    def schema(self) -> Schema:
        attributes = tuple(_attribute(settings) for settings in self.facts["schema"])
        wording = Wording.from_plain(self.facts["wording"])
        return Schema(attributes, wording, tuple(self.facts["rules"]))

    def arrays_of(self, part: int) -> dict[str, NDArray[Any]]:
        """Return the arrays of one outcome's catalogue; `part` is its number in the file."""
        prefix = f"{part}."
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }

    @cached_property
    def codes(self) -> Codes:
        """The encoder of rows, with those values of the training table that the file contains."""
        schema = self.schema
        columns = zip(schema.features, self.facts["columns"], strict=True)
        return Codes(
            tuple(
                _column(schema[name], facts, self.arrays.get(f"column.{j}"), self.key)
                for j, (name, facts) in enumerate(columns)
            ),
            schema.rules,
        )

    @classmethod
    def of_table(
        cls, schema: Schema, codes: Codes, public: Mapping[int, Floats], key: bytes = b""
    ) -> CatalogueFile:
        """Return a file with the schema and the columns of a training table.

        Parameters
        ----------
        schema : Schema
        codes : Codes
        public : mapping of position of a private column to codes, shape (n_public,)
            The values of private columns that may be in the file.
        key : bytes
        """
        columns = list(enumerate(codes.columns))
        facts = {
            **plain_schema(schema),
            "columns": [plain_column(column, public.get(j), key) for j, column in columns],
        }
        arrays = {
            f"column.{j}": numbers_of(column, public.get(j))
            for j, column in columns
            if column.is_numeric
        }
        return cls(facts, arrays, key)

    def with_content(
        self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> CatalogueFile:
        """Return the file with additional facts and arrays."""
        return CatalogueFile({**self.facts, **facts}, {**self.arrays, **arrays}, self.key)

    def write(self, path: str | Path) -> None:
        """Write the file as a whole or not at all. Only its owner may read it.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        text = json.dumps(self.facts, sort_keys=True, default=np.ndarray.tolist)
        members = {_FACTS: text.encode()}
        for name, array in self.arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            members[f"{name}.npy"] = content.getvalue()
        archive = _archive(members)
        with whole_file(Path(path)) as draft:
            draft.touch(mode=0o600)
            draft.write_bytes(archive + _seal(archive, self.key))

    @classmethod
    def read(cls, source: str | Path | bytes, key: bytes = b"") -> CatalogueFile:
        """Read a file. The archive is opened only if the seal is right.

        Parameters
        ----------
        source : str, Path or bytes
            The path of a file, or its content.
        key : bytes

        Raises
        ------
        BundleError
            If there is no catalogue, or the seal does not match the key and the content.
        """
        content = source if isinstance(source, bytes) else _content(Path(source))
        archive, seal = _divided(content)
        _check_seal(archive, seal, key)
        try:
            with zipfile.ZipFile(io.BytesIO(archive + seal)) as members:
                contents = {name: members.read(name) for name in members.namelist()}
            facts = json.loads(contents.pop(_FACTS))
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
                for name, content in contents.items()
            }
        except Exception:  # noqa: BLE001 - without a key, the content may come from an attacker
            raise BundleError("the catalogue cannot be read; save it again") from None
        return cls(facts, arrays, key)


def _archive(members: Mapping[str, bytes]) -> bytes:
    """Return a ZIP archive without its comment, with space for a seal as the comment."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in members.items():
            bundle.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
        bundle.comment = bytes(_SEAL_LENGTH)
    return archive.getvalue()[:-_SEAL_LENGTH]


def _seal(archive: bytes, key: bytes) -> bytes:
    """Return the comment of an archive: title, version, check of the key, and digest."""
    digest = hmac.digest(key or _NO_KEY, archive, "sha256").hex()
    return _TITLE + _VERSION + _key_check(key) + b" " + digest.encode()


def _key_check(key: bytes) -> bytes:
    """Return a digest of the key, by which a reader with another key is recognised.

    Without a key it is zeros.
    """
    if not key:
        return b"0" * _CHECK_LENGTH
    return hmac.digest(key, _KEY_CHECK, "sha256").hex()[:_CHECK_LENGTH].encode()


def _content(path: Path) -> bytes:
    """Read the bytes of a file; raise a BundleError if that fails."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BundleError("there is no catalogue at this path; write one with save()") from None
    except OSError as error:
        raise BundleError(
            f"the catalogue cannot be read: {type(error).__name__}; check the path"
        ) from None


def _divided(content: bytes) -> tuple[bytes, bytes]:
    """Return the archive and the seal of a file."""
    return content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]


def _check_seal(archive: bytes, seal: bytes, key: bytes) -> None:
    """Raise a BundleError if a file is not a catalogue, has another key, or was changed."""
    if not seal.startswith(_TITLE):
        raise BundleError("the file is not a catalogue, or is damaged; save the catalogue again")
    if not seal.startswith(_TITLE + _VERSION):
        raise BundleError(
            "the catalogue has another format; upgrade cfk_plugin, or save the catalogue again"
        )
    check = seal[_HEAD_LENGTH : _HEAD_LENGTH + _CHECK_LENGTH]
    has_key = check != _key_check(b"")
    if has_key and not key:
        raise BundleError("the catalogue was saved with a key; pass it, or set CFK_KEY")
    if key and not has_key:
        raise BundleError(
            "the catalogue was saved without a key, but a key was passed; pass none (and unset"
            " CFK_KEY), or save the catalogue again with the key"
        )
    if check != _key_check(key):
        raise BundleError("the catalogue was saved with another key; pass that key")
    if not hmac.compare_digest(seal, _seal(archive, key)):
        raise BundleError("the catalogue was changed after it was saved; save it again")


# The schema and the columns


def plain_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON-ready values."""
    return {
        "schema": [asdict(attribute) for attribute in schema.attributes],
        "wording": schema.wording.to_plain(),
        "rules": schema.rules,
    }


def _attribute(facts: Mapping[str, Any]) -> SchemaAttribute:
    """Return an attribute from its part of `plain_schema`."""
    settings = dict(facts)
    for name, value in settings.items():
        if isinstance(value, list):
            settings[name] = tuple(value)
    tree = settings["hierarchy"]
    if tree is not None:
        arrays = {name: np.array(tree[name], dtype=np.int32) for name in ("low", "high", "parent")}
        settings["hierarchy"] = Hierarchy(tuple(tree["leaves"]), tuple(tree["titles"]), **arrays)
    return SchemaAttribute(**settings)


def plain_column(column: Column, public: Floats | None, key: bytes) -> dict[str, Any]:
    """Return a column without its numbers as JSON-ready values.

    Parameters
    ----------
    column : Column
    public : shape (n_public,), optional
        The codes whose values may be in the file; all by default.
    key : bytes
        The key for the digests of other categories.
    """
    facts: dict[str, Any] = {
        "kind": column.kind,
        "has_missing": column.has_missing,
        "missing": str(column.missing),
        "dtype": str(column.dtype),
        "cell": column.cell,
        "categories": None,
        "hidden": {},
    }
    if column.is_numeric:
        return facts | {
            "span": column.span,
            "decimals": column.decimals,
            "resolution": column.resolution,
        }
    values = [_plain_scalar(value) for value in column.values.tolist()]
    if isinstance(column.dtype, pd.CategoricalDtype):
        code_of_value = {value: code for code, value in enumerate(values)}
        categories = [_plain_scalar(value) for value in column.dtype.categories.tolist()]
        facts["categories"] = [
            code_of_value[value] for value in categories if value in code_of_value
        ]
        facts["is_ordered"] = bool(column.dtype.ordered)
        facts["dtype"] = "object"
    if isinstance(column, SealedColumn):
        facts["hidden"] = dict(column.code_of_digest)
    for code in _hidden_codes(column, public):
        digest = _digest(column.name, to_text(column.values[code]), key)
        facts["hidden"][digest] = code
        values[code] = None
    return facts | {"values": values, "value_type": _value_type(column)}


def _hidden_codes(column: Column, public: Floats | None) -> list[int]:
    """Return the codes of categories that must not be in the file: neither declared nor public."""
    if public is None or column.attribute.declared_values is not None:
        return []
    if _value_type(column) == "bool":
        return []
    declared = {to_text(value) for value in column.attribute.categories or ()}
    return [
        code
        for code, value in enumerate(column.values.tolist())
        if value is not None and code not in public and to_text(value) not in declared
    ]


def _value_type(column: Column) -> str:
    """Return the type of a column's categories; "str" if they have several."""
    values = [_plain_scalar(value) for value in column.values.tolist() if value is not None]
    names = {type(value).__name__ for value in values}
    return names.pop() if len(names) == 1 else "str"


def _digest(name: str, text: str, key: bytes) -> str:
    """Return the keyed digest by which a category is recognised."""
    content = json.dumps(["category", name, text]).encode()
    return hmac.digest(key or _NO_KEY, content, "sha256").hex()[:_DIGEST_LENGTH_OF_CATEGORY]


def numbers_of(column: Column, public: Floats | None) -> Floats:
    """Return the numbers of a numeric column that may be in the file: all, or the public ones."""
    numbers: Floats = column.places if public is None else public[public != MISSING]
    return numbers


def _column(
    attribute: SchemaAttribute, facts: Mapping[str, Any], numbers: NDArray[Any] | None, key: bytes
) -> Column:
    """Return a column from the result of `plain_column`.

    `numbers` are its values if it has numbers or dates.
    """
    dtype = types.pandas_dtype(facts["dtype"])
    missing = _MISSING_VALUES.get(facts["missing"], np.nan)
    kind = facts["kind"]
    if numbers is not None:
        column = Column(
            attribute, kind, numbers, facts["has_missing"], dtype, missing, facts["cell"]
        )
        # these properties would be computed from the values of the training table
        vars(column).update({name: facts[name] for name in ("span", "decimals", "resolution")})
        return column
    values = np.empty(len(facts["values"]), dtype=object)
    values[:] = facts["values"]
    sealed = SealedColumn(
        attribute,
        kind,
        values,
        facts["has_missing"],
        dtype,
        missing,
        facts["cell"],
        code_of_digest=facts["hidden"],
        key=key,
        value_type=facts["value_type"],
        categories=facts["categories"],
        is_ordered=facts.get("is_ordered", False),
    )
    sealed.update_dtype()
    return sealed


@dataclass(frozen=True, eq=False, repr=False)
class SealedColumn(Column):
    """A column of categories in a file, which hides some of them.

    A hidden category is None among the values, and the file contains only its digest. When a query
    has the category, it gets its place back. So the query gets the same code as with the training
    table.

    Attributes
    ----------
    code_of_digest : mapping of str to int
    key : bytes
        The key of the digests.
    value_type : {"str", "int", "float", "bool"}
    categories : sequence of int, optional
        The codes of the dtype's categories, in order; None if the dtype is not categorical.
    is_ordered : bool
        Whether the categories of the dtype are ordered.
    """

    code_of_digest: Mapping[str, int] = field(default_factory=dict)
    key: bytes = b""
    value_type: str = "str"
    categories: Sequence[int] | None = None
    is_ordered: bool = False

    def encode(self, series: pd.Series) -> Floats:
        """Return the code of each value, shape (n_rows,); NaN if a value has none."""
        if self.code_of_digest:
            for value in factorized(series)[1]:
                self._recognise(value)
        return super().encode(series)

    def _recognise(self, value: Any) -> None:
        """If a value is a hidden category, put it in its place among the values."""
        if not np.isnan(self._code_of(value)):
            return
        for spelling in spellings(value):
            code = self.code_of_digest.get(_digest(self.name, spelling, self.key))
            if code is not None:
                self.values[code] = _VALUE_TYPES[self.value_type](spelling)
                self._code_of_text[spelling] = float(code)
                vars(self).pop("_pool", None)
                vars(self).pop("_pool_with_missing", None)
                self.update_dtype()
                return

    def update_dtype(self) -> None:
        """Set the categories of the dtype to all visible categories."""
        if self.categories is None:
            return
        categories = [self.values[code] for code in self.categories]
        visible = [value for value in categories if value is not None]
        vars(self).update(dtype=pd.CategoricalDtype(visible, ordered=self.is_ordered))


def _plain_scalar(value: Any) -> Any:
    """Return a value as a plain Python value that JSON can contain, or as its text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, (bool, int, float, str)) else str(plain)
