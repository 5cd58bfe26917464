"""What is logged of one set of explanations: plain values that may leave, and counts for the data holder."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """Explanations as they are logged, with an identity and a time of their own: sending them twice changes nothing.

    Attributes
    ----------
    id : str
        Random; never derived from a row.
    created : int
        Milliseconds since 1970.
    params : dict
        Parameters of the run; records with other parameters belong to another run.
    tags : dict
        Tags of the run, the verdict excepted.
    policy : dict
    columns : list of str
        Features, in order.
    rows : list of dict
        One per entry: what may leave. See `table`.
    found : dict
        Number of raw counterfactuals that detection looked at (``examined``), and of each of its findings.
    least : dict
        ``k_desired``, ``k_effective``: the least value, where there is one.
    epsilon_spent : float, optional
    untracked : int
        Counterfactuals that were given out before this without a record, as no record could be kept.
    """

    id: str
    created: int
    params: dict[str, str]
    tags: dict[str, str]
    policy: dict[str, Any]
    columns: list[str]
    rows: list[dict[str, Any]]
    found: dict[str, int]
    least: dict[str, float]
    epsilon_spent: float | None = None
    untracked: int = 0

    @classmethod
    def of(cls, explanations: Loggable) -> Record:
        """Take down a set of explanations."""
        policy, provenance = explanations.policy, explanations.provenance
        settings = {f"cfk.{name}": str(provenance[name]) for name in _SETTINGS if provenance.get(name)}
        certificates = [e.certificate for e in explanations if isinstance(e, GeneralizedCounterfactual)]
        least = {
            name: float(min(known))
            for name in ("k_desired", "k_effective")
            if (known := [v for c in certificates if (v := getattr(c, name)) is not None])
        }
        found = [f for f in explanations.findings if f is not None]
        spent = provenance.get("epsilon_spent")
        return cls(
            id=secrets.token_hex(8),
            created=time.time_ns() // 1_000_000,
            params={"cfk.k": str(policy.k), "cfk.guarantee": str(policy.guarantee), **settings},
            tags=_tags(explanations, sorted({c.population for c in certificates})),
            policy=policy.to_dict(),
            columns=list(explanations.columns),
            rows=[_row(entry, explanations.columns) for entry in explanations],
            found={"examined": len(found), **{name: found.count(name) for name in set(found)}},
            least=least,
            epsilon_spent=None if spent is None else float(spent),
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a record back."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @property
    def k(self) -> int:
        """People that the policy asks for."""
        return int(self.policy["k"])

    @property
    def released(self) -> list[dict[str, Any]]:
        """Rows of what was released."""
        return [row for row in self.rows if row["status"] == GeneralizedCounterfactual.status]


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

    rows = [{**row, "timestamp": record.created} for record in records for row in record.rows]
    for step, row in enumerate(rows, start=first_step):
        row["step"] = step
    return pa.Table.from_pylist(rows, schema=_arrow_schema(records[0].columns))


def _tags(explanations: Loggable, prints: Sequence[str]) -> dict[str, str]:
    provenance = explanations.provenance
    tags = {
        "cfk.schema_version": str(SCHEMA_VERSION),
        "cfk.policy_sha256": explanations.policy.sha256,
        "cfk.population_fingerprint": provenance.get("population") or ",".join(prints),
        "cfk.plugins": provenance.get("plugins", ""),
    }
    return {name: value for name, value in tags.items() if value}


def _row(entry: Entry, columns: Sequence[str]) -> dict[str, Any]:
    plain = entry.to_dict()
    row: dict[str, Any] = {"query": int(entry.query), "status": entry.status}
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
