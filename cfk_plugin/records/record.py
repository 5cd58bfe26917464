"""What is logged of one set of explanations: plain values that may leave, and counts for the data holder."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from cfk_plugin.hookspecs import Finding
from cfk_plugin.release.results import (
    Entry,
    GeneralizedCounterfactual,
    PrototypeCertificate,
    PrototypeCounterfactual,
    PrototypePolicy,
    Suppressed,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from cfk_plugin.release.explanations import ResultContext
    from cfk_plugin.release.results import Policy


# What a run holds beside the explanations, for the data holder alone: counts, decisions and times, row by row.

_COUNTS = ("k_desired", "k_consistent", "k_effective", "k_private", "private_matches", "l")
_SHARES = ("t", "disclosure", "journalist_risk")
_OF_CERTIFICATE = (*_COUNTS, *_SHARES, "majority", "ledger", "k_intersection")
_REFUSED_BY_LEDGER = "intersection"
_MICROSECONDS = 6  # decimals of seconds


def quasi_identifiers(explanations: Loggable) -> list[str]:
    """Return the attributes that have an NCP of their own, in the order of `ncp_parts`, as far as that is known."""
    declared = (explanations.about.population or {}).get("attributes", ())
    if names := [each["name"] for each in declared if each["role"] == "quasi-identifier"]:
        return sorted(names)
    regions = (entry.region for entry in explanations if isinstance(entry, GeneralizedCounterfactual))
    first: Mapping[str, Any] = next(regions, {})
    return sorted(first)


def recount(explanations: Loggable, quasi: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per entry; what it does not have is left out. Of prototypes nothing is counted."""
    common = _of_call(explanations.about)
    groups = explanations.about.groups or (None,) * len(explanations)
    uncounted = isinstance(explanations.policy, PrototypePolicy)
    rows = []
    for entry, finding, group in zip(explanations, explanations.findings, groups, strict=True):
        row = dict(common) if uncounted else _counted(entry, finding, quasi) | common
        if group is not None:
            row["group"] = group
        rows.append(row)
    return rows


def recount_table(records: Sequence[RunRecord], first_step: int = 0) -> pa.Table | None:
    """Return the rows of records as a table, in the order of `table`; None where there are none."""
    import pyarrow as pa

    if not any(record.recount for record in records):
        return None
    rows = [row for record in records for row in record.recount or [{}] * len(record.rows)]
    steps = [{**row, "step": step} for step, row in enumerate(rows, start=first_step)]
    names = list(dict.fromkeys(name for record in records for name in record.quasi_identifiers))
    types = {
        "step": pa.int64(),
        **dict.fromkeys(_COUNTS, pa.int64()),
        **dict.fromkeys(_SHARES, pa.float64()),
        "majority": pa.bool_(),
        "finding": pa.string(),
        "refused_k": pa.int64(),
        "ledger": pa.string(),
        "k_intersection": pa.int64(),
        "seconds": pa.float64(),
        "group": pa.string(),
        **{f"ncp.{name}": pa.float64() for name in names},
    }
    return pa.Table.from_pylist(steps, schema=pa.schema(list(types.items())))


def _of_call(about: ResultContext) -> dict[str, Any]:
    return {} if about.seconds is None else {"seconds": round(about.seconds, _MICROSECONDS)}


def _counted(entry: Entry, finding: Finding | None, quasi: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"finding": finding}
    if isinstance(entry, GeneralizedCounterfactual):
        certificate = entry.certificate
        row |= {name: getattr(certificate, name) for name in _OF_CERTIFICATE}
        row |= {f"ncp.{name}": part for name, part in zip(quasi, certificate.ncp_parts, strict=False)}
    elif isinstance(entry, Suppressed):
        row |= {"refused_k": entry.refused_k, "ledger": "refused" if entry.reason == _REFUSED_BY_LEDGER else None}
    return {name: value for name, value in row.items() if value is not None}


# What is logged of one set of explanations: plain values that may leave, and counts for the data holder.

SCHEMA_VERSION = 1
"""Version of the names and the layout of a run; tag ``cfk.schema_version``."""

_SETTINGS = ("method", "generator", "candidates", "epsilon")
_RISK = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
_UNPROVEN = "no guarantee; see audit"
_CERTIFICATE = (*_RISK, "exact", "optimal", "gap", "method", "guarantee", "policy_hash", "population")


class Loggable(Protocol):
    """What tracking needs of a set of explanations; `Explanations` is one."""

    policy: Policy
    columns: tuple[str, ...]
    findings: tuple[Finding | None, ...]
    provenance: dict[str, str]
    about: ResultContext
    n_people: int

    def __len__(self) -> int:
        """Return the number of counterfactuals asked for."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class RunRecord:
    """Explanations as they are logged, with an identity and a time of their own: sending them twice changes nothing."""

    id: str  # Random; never derived from a row
    created: int  # Milliseconds since 1970
    params: dict[str, str]  # Parameters of the run; records with other parameters belong to another run
    tags: dict[str, str]  # Tags of the run, the verdict excepted
    policy: dict[str, Any]
    columns: list[str]  # Features, in order
    rows: list[dict[str, Any]]  # One per entry: what may leave. See `table`.
    # Number of raw counterfactuals that detection looked at (``examined``), and of each of its findings
    found: dict[str, int]
    least: dict[str, float]  # ``k_desired``, ``k_effective``: the least value, where there is one
    # Privacy budget spent so far; None where there is none, or nothing is guaranteed
    epsilon_spent: float | None = None
    untracked: int = 0  # Counterfactuals that were given out before this without a record, as no record could be kept
    # One per entry: for the data holder alone. See `recount_table`. Empty in records of earlier versions.
    recount: list[dict[str, Any]] = field(default_factory=list)
    quasi_identifiers: list[str] = field(default_factory=list)  # Attributes that have an NCP of their own
    people: int = 0  # People in the population, where that may be said; else 0
    # What the run says once; see `cfk_plugin.data.provenance` and `cfk_plugin.data.provenance`
    population: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None

    @classmethod
    def of(cls, explanations: Loggable) -> RunRecord:
        """Take down a set of explanations."""
        certificates = [e.certificate for e in explanations if isinstance(e, GeneralizedCounterfactual)]
        least = {
            name: float(min(known))
            for name in ("k_desired", "k_effective")
            if (known := [v for c in certificates if (v := getattr(c, name)) is not None])
        }
        found = [f for f in explanations.findings if f is not None]
        prototype = _certificate_of_prototypes(explanations)
        claimed = prototype is not None and prototype.guarantee == "none"
        spent = None if claimed else explanations.provenance.get("epsilon_spent")
        about, quasi = explanations.about, quasi_identifiers(explanations)
        return cls(
            id=secrets.token_hex(8),
            created=time.time_ns() // 1_000_000,
            params=_params(explanations, prototype),
            tags=_tags(explanations, prototype, sorted({c.population for c in certificates})),
            policy=explanations.policy.to_dict(),
            columns=list(explanations.columns),
            rows=[_row(entry, explanations.columns) for entry in explanations],
            found={"examined": len(found), **{name: found.count(name) for name in set(found)}},
            least=least,
            epsilon_spent=None if spent is None else float(spent),
            recount=recount(explanations, quasi),
            quasi_identifiers=quasi,
            people=0 if isinstance(explanations.policy, PrototypePolicy) else explanations.n_people,
            population=None if about.population is None else dict(about.population),
            environment=None if about.environment is None else dict(about.environment),
        )

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """Read a record back."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the record as JSON."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(own, ensure_ascii=False, separators=(",", ":"))

    @property
    def k(self) -> int:
        """People that the policy asks for; one of prototypes asks for none."""
        return int(self.policy["k"])

    @property
    def of_prototypes(self) -> bool:
        """Whether the policy is one of prototypes."""
        return "k" not in self.policy

    @property
    def released(self) -> list[dict[str, Any]]:
        """Rows of what was released."""
        return [row for row in self.rows if row["status"] == GeneralizedCounterfactual.status]

    @property
    def generalized(self) -> list[dict[str, Any]]:
        """Rows of the regions that were released."""
        return [] if self.of_prototypes else self.released

    @property
    def prototypes(self) -> list[dict[str, Any]]:
        """Rows of the prototypes that were released."""
        return self.released if self.of_prototypes else []


def table(records: Sequence[RunRecord], first_step: int = 0) -> pa.Table:
    """Return the released records as a table: one row per entry, nothing in it that may not leave.

    Parameters
    ----------
    records : sequence of RunRecord
        Of explanations with the same columns.
    first_step : int
        Sequence number of the first entry in its run.

    Returns
    -------
    pyarrow.Table
        ``step``, ``timestamp``, ``query``, ``status``, ``reason``, the public fields of the certificate,
        ``region`` and ``released`` as JSON, and one text column ``feature.<name>`` per feature. Of prototypes these
        columns are there, too, and after them ``epsilon``, ``delta``, and ``prototype`` and ``certificate`` as JSON.
    """
    import pyarrow as pa

    rows = [{**row, "timestamp": record.created} for record in records for row in record.rows]
    for step, row in enumerate(rows, start=first_step):
        row["step"] = step
    return pa.Table.from_pylist(rows, schema=_arrow_schema(records[0]))


def _certificate_of_prototypes(explanations: Loggable) -> PrototypeCertificate | None:
    """Return the one certificate that all prototypes share."""
    return next((entry.certificate for entry in explanations if isinstance(entry, PrototypeCounterfactual)), None)


def _params(explanations: Loggable, prototype: PrototypeCertificate | None) -> dict[str, str]:
    policy, provenance = explanations.policy, explanations.provenance
    settings = {f"cfk.{name}": str(provenance[name]) for name in _SETTINGS if provenance.get(name)}
    settings |= {"cfk.groups": explanations.about.attribute} if explanations.about.attribute else {}
    if not isinstance(policy, PrototypePolicy):
        return {"cfk.k": str(policy.k), "cfk.guarantee": str(policy.guarantee), **settings}
    budget = {"cfk.method": policy.method, "cfk.epsilon": str(policy.epsilon), "cfk.delta": str(policy.delta)}
    found = _guarantee(policy, prototype)
    named = {} if found is None else {"cfk.guarantee": "none" if found == "none" else f"dp-{found}"}
    return {**settings, **budget, **named}


def _guarantee(policy: PrototypePolicy, prototype: PrototypeCertificate | None) -> str | None:
    """Return what is guaranteed; None while nothing was released, as only a certificate says what came of the plan."""
    if prototype is not None:
        return prototype.guarantee
    return "none" if policy.guarantee == "none" else None


def _tags(explanations: Loggable, prototype: PrototypeCertificate | None, prints: Sequence[str]) -> dict[str, str]:
    policy, provenance = explanations.policy, explanations.provenance
    tags = {
        "cfk.schema_version": str(SCHEMA_VERSION),
        "cfk.policy_sha256": policy.sha256,
        "cfk.plugins": provenance.get("plugins", ""),
    }
    if isinstance(policy, PrototypePolicy):
        # No fingerprint of the population: it is computed from the exact table, which no epsilon covers.
        found = _guarantee(policy, prototype) or ""
        tags |= {
            "cfk.dp.guarantee": _UNPROVEN if found == "none" else found,
            "cfk.dp.model_access": policy.model_access,
        }
        tags |= {} if prototype is None else {"cfk.dp.covers": prototype.covers, "cfk.dp.fit": prototype.fit}
    else:
        tags["cfk.population_fingerprint"] = provenance.get("population") or ",".join(prints)
    return {name: value for name, value in tags.items() if value}


def _row(entry: Entry, columns: Sequence[str]) -> dict[str, Any]:
    plain = entry.to_dict()
    row: dict[str, Any] = {"query": int(entry.query), "status": entry.status}
    if isinstance(entry, GeneralizedCounterfactual):
        cells = entry.cells()
        row.update(plain["certificate"])
        row.update({name: json.dumps(plain[name], ensure_ascii=False) for name in ("region", "released")})
        row.update({f"feature.{name}": cells.get(name) for name in columns})
    elif isinstance(entry, Suppressed):
        row["reason"] = entry.reason
    else:
        cells, certificate = entry.cells(), plain["certificate"]
        row.update({name: certificate[name] for name in ("guarantee", "epsilon", "delta")})
        row.update({name: json.dumps(plain[name], ensure_ascii=False) for name in ("prototype", "certificate")})
        row.update({f"feature.{name}": cells.get(name) for name in columns})
    return row


def _arrow_schema(record: RunRecord) -> pa.Schema:
    import pyarrow as pa

    types: Mapping[str, pa.DataType] = {
        "timestamp": pa.timestamp("ms", tz="UTC"),
        **dict.fromkeys(("step", "query", "k"), pa.int64()),
        **dict.fromkeys(("ncp", "pureness", "pureness_low", "pureness_high", "gap", "epsilon", "delta"), pa.float64()),
        **dict.fromkeys(("exact", "optimal"), pa.bool_()),
    }
    names = ["step", "timestamp", "query", "status", "reason", *_CERTIFICATE, "region", "released"]
    names += [f"feature.{name}" for name in record.columns]
    names += ["epsilon", "delta", "prototype", "certificate"] if record.of_prototypes else []
    return pa.schema([(name, types.get(name, pa.string())) for name in names])
