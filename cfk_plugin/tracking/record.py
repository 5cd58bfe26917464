"""What is logged of one set of explanations: parameters, tags, and a table of what may leave."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cfk_plugin.counterfactual import Entry, Finding, GeneralizedCounterfactual

if TYPE_CHECKING:
    import pyarrow as pa

    from cfk_plugin.policy import PrivacyPolicy

SCHEMA_VERSION = 1
"""Version of the names and the layout of a run; tag ``cfk.schema_version``."""

_SETTINGS = ("method", "generator", "epsilon")
_RISK = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
_CERTIFICATE = (*_RISK, "exact", "optimal", "gap", "method", "guarantee", "policy_hash", "population")


class Loggable(Protocol):
    """What tracking needs of a set of explanations; `Explanations` is one."""

    policy: PrivacyPolicy
    columns: tuple[str, ...]
    findings: tuple[Finding | None, ...]
    provenance: dict[str, str]

    def __len__(self) -> int:
        """Return the number of counterfactuals asked for."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Record:
    """Explanations with an identity and a time of their own, so that sending them twice changes nothing.

    Attributes
    ----------
    explanations : Loggable
    id : str
        Random; never derived from a row.
    created : int
        Milliseconds since 1970.
    """

    explanations: Loggable
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    created: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def params(self) -> dict[str, str]:
        """Parameters of the run; records with other parameters belong to another run."""
        policy, provenance = self.explanations.policy, self.explanations.provenance
        params = {"cfk.k": str(policy.k), "cfk.guarantee": str(policy.guarantee)}
        return params | {f"cfk.{name}": str(provenance[name]) for name in _SETTINGS if provenance.get(name)}

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the run, the verdict excepted."""
        provenance = self.explanations.provenance
        released = [e for e in self.explanations if isinstance(e, GeneralizedCounterfactual)]
        prints = sorted({e.certificate.population for e in released})
        tags = {
            "cfk.schema_version": str(SCHEMA_VERSION),
            "cfk.policy_sha256": self.explanations.policy.sha256,
            "cfk.population_fingerprint": provenance.get("population") or ",".join(prints),
            "cfk.plugins": provenance.get("plugins", ""),
        }
        return {name: value for name, value in tags.items() if value}


def table(records: Sequence[Record], first_step: int = 0) -> pa.Table:
    """Return the released records as a table: one row per entry, nothing in it that may not leave.

    Parameters
    ----------
    records : sequence of Record
        Of explanations with the same columns.
    first_step : int
        Sequence number of the first entry in its run.

    Returns
    -------
    pyarrow.Table
        ``step``, ``timestamp``, ``query``, ``status``, ``reason``, the public fields of the certificate,
        ``region`` and ``released`` as JSON, and one text column ``feature.<name>`` per feature.
    """
    import pyarrow as pa

    columns = records[0].explanations.columns
    rows = [_row(entry, record.created, columns) for record in records for entry in record.explanations]
    for step, row in enumerate(rows, start=first_step):
        row["step"] = step
    return pa.Table.from_pylist(rows, schema=_arrow_schema(columns))


def _row(entry: Entry, created: int, columns: Sequence[str]) -> dict[str, Any]:
    plain = entry.to_dict()
    row: dict[str, Any] = {"timestamp": created, "query": int(entry.query), "status": entry.status}
    if isinstance(entry, GeneralizedCounterfactual):
        cells = entry.cells()
        row.update(plain["certificate"])
        row.update({name: json.dumps(plain[name], ensure_ascii=False) for name in ("region", "released")})
        row.update({f"feature.{name}": cells.get(name) for name in columns})
    else:
        row["reason"] = entry.reason
    return row


def _arrow_schema(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types: Mapping[str, pa.DataType] = {
        "timestamp": pa.timestamp("ms", tz="UTC"),
        **dict.fromkeys(("step", "query", "k"), pa.int64()),
        **dict.fromkeys(("ncp", "pureness", "pureness_low", "pureness_high", "gap"), pa.float64()),
        **dict.fromkeys(("exact", "optimal"), pa.bool_()),
    }
    names = ["step", "timestamp", "query", "status", "reason", *_CERTIFICATE, "region", "released"]
    names += [f"feature.{name}" for name in columns]
    return pa.schema([(name, types.get(name, pa.string())) for name in names])
