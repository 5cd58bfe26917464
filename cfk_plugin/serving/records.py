"""One uniform record per counterfactual: the same keys and types whatever was released, for JSON, MLflow and Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.data.region import Interval, Part, json_value
from cfk_plugin.errors import AdapterError, CFKError, LedgerError, ModelError, quiet
from cfk_plugin.release.results import Entry, Suppressed

if TYPE_CHECKING:
    from cfk_plugin.data.domain import Domain

_log = logging.getLogger("cfk_plugin")

FEATURE: Mapping[str, str] = MappingProxyType(
    {"name": "text", "kind": "text", "low": "number?", "high": "number?", "values": "texts", "missing": "flag"}
)
"""What is said of one feature, and its type; ``?`` marks what may be absent."""

RECORD: Mapping[str, str] = MappingProxyType(
    {
        "query": "whole",
        "status": "text",
        "reason": "text?",
        "sentence": "text?",
        "k": "whole?",
        "ncp": "number?",
        "pureness": "number?",
        "features": "features",
    }
)
"""What a record has, and the types; ``features`` is a list of `FEATURE`."""

_REASONS: Mapping[type[CFKError], str] = MappingProxyType(
    {
        LedgerError: "ledger_failed",
        ModelError: "model_failed",
        AdapterError: "explainer_failed",
    }
)


def reason_of(failure: CFKError) -> str:
    """Return why everything is withheld after a failure that would otherwise be the caller's to handle."""
    return next((reason for kind, reason in _REASONS.items() if isinstance(failure, kind)), "protector_failed")


def record_of(
    entry: Entry, factual: Mapping[str, Any] | None, names: Sequence[str], domains: Mapping[str, Domain]
) -> dict[str, Any]:
    """Return what may leave of an entry, as JSON can hold it. Whatever cannot be written is withheld, for itself alone.

    Queries and answers are checked before (`cfk_plugin.data.intake`), so that nothing fails here that a ledger has on
    record as released: what does all the same is a fault of ours, and stays on record. That errs on the careful side,
    as a ledger must never have less than what left.
    """
    try:
        with quiet("{}", CFKError):
            record = _written(entry, factual, names, domains)
            json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
            return record
    except CFKError as failure:  # its text is the class of what was raised
        _log.warning("an explanation is withheld, as it could not be written: %s", failure)
    return _written(Suppressed(entry.query, "protector_failed"), None, (), {})


def _written(
    entry: Entry, factual: Mapping[str, Any] | None, names: Sequence[str], domains: Mapping[str, Domain]
) -> dict[str, Any]:
    parts: Mapping[str, Part] = {}
    certificate, reason, told = None, None, None
    if isinstance(entry, Suppressed):
        reason, told, names = entry.reason, entry.text(), ()
    else:
        parts, certificate = entry.parts(), entry.certificate
        told = None if factual is None else entry.text(factual)
    return {
        "query": entry.query,
        "status": entry.status,
        "reason": reason,
        "sentence": told,
        **{name: getattr(certificate, name, None) for name in ("k", "ncp", "pureness")},
        "features": [_feature(name, parts.get(name), domains[name]) for name in names],
    }


def _feature(name: str, part: Part | None, domain: Domain) -> dict[str, Any]:
    kind, low, high, values, missing = "withheld", None, None, [], False
    if isinstance(part, Interval):
        missing = part.missing
        ends = [] if part.low is None else [part.low, part.high]
        if part.levels is not None:
            kind, values = "rank", [part.levels[0], part.levels[-1]]
        elif domain.is_date:
            kind, values = "date", [str(json_value(end)) for end in ends]
        else:
            kind = "number"
            low, high = (float(end) for end in ends) if ends else (None, None)
    elif part is not None:
        kind, missing = "set", None in part
        values = sorted(str(json_value(v)) for v in part if v is not None and not pd.isna(v))
    return {"name": name, "kind": kind, "low": low, "high": high, "values": values, "missing": missing}
