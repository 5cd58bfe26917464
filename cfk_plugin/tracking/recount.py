"""What a run holds beside the explanations, for the data holder alone: counts, decisions and times, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cfk_plugin.counterfactual import Entry, Finding, GeneralizedCounterfactual, Suppressed
from cfk_plugin.prototype import PrototypePolicy

if TYPE_CHECKING:
    import pyarrow as pa

    from cfk_plugin.about import About
    from cfk_plugin.tracking.record import Loggable, Record

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
    """Return one row per entry; what it does not have is left out. Of prototypes nothing is counted.

    Parameters
    ----------
    explanations : Explanations
    quasi : sequence of str
        From `quasi_identifiers`.
    """
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


def recount_table(records: Sequence[Record], first_step: int = 0) -> pa.Table | None:
    """Return the rows of records as a table, in the order of `table`; None where there are none.

    Parameters
    ----------
    records : sequence of Record
        Some of them may be without: they were kept by an earlier version. Their rows are empty.
    first_step : int
        Sequence number of the first entry in its run.

    Returns
    -------
    pyarrow.Table, optional
        ``step``; ``k_desired``, ``k_consistent``, ``k_effective``, ``k_private``, ``private_matches``, ``l``, ``t``,
        ``disclosure``, ``journalist_risk``, ``majority`` and ``k_intersection`` as in `Certificate`; ``finding``, what
        detection said of the raw counterfactual; ``refused_k`` as in `Suppressed`; ``ledger``, what the ledger decided
        (``new``, ``again``, ``earlier``, ``refused``); ``seconds``, wall time of the call per entry; ``group`` of who
        asked; ``ncp.<attribute>`` of each quasi-identifier, not weighted.
    """
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


def _of_call(about: About) -> dict[str, Any]:
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
