"""One record per counterfactual, with the same keys and types whatever was released, for JSON,
MLflow and Spark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.data.region import Interval, Part, json_value
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import AdapterError, CFKError, ModelError, quiet
from cfk_plugin.release.results import Explanation, Withheld

if TYPE_CHECKING:
    from cfk_plugin.data.domain import Domain

_log = logging.getLogger("cfk_plugin")
_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

Known = dict[tuple[str, int], tuple[Part | None, dict[str, Any]]]
"""Parts of regions, each with the record that was written for it."""

FEATURE: Mapping[str, str] = MappingProxyType(
    {
        "name": "text",
        "kind": "text",
        "low": "number?",
        "high": "number?",
        "values": "texts",
        "missing": "flag",
    }
)
"""Keys of one feature and their types; ``?`` marks what may be absent."""

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
"""Keys of a record and their types; ``features`` is a list of `FEATURE`."""

_REASONS: Mapping[type[CFKError], str] = MappingProxyType(
    {
        ModelError: "model_failed",
        AdapterError: "explainer_failed",
    }
)


def reason_of(failure: CFKError) -> str:
    """Return the reason for which everything is withheld after a failure that a caller would
    otherwise handle.
    """
    return next(
        (reason for kind, reason in _REASONS.items() if isinstance(failure, kind)),
        "protector_failed",
    )


def record_of(
    entry: Explanation,
    factual: Mapping[str, Any] | None,
    names: Sequence[str],
    domains: Mapping[str, Domain],
    known: Known | None = None,
    wording: Wording | None = None,
) -> dict[str, Any]:
    """Return what may leave of an entry, as JSON-ready values.

    An entry that cannot be written is withheld, alone.

    What it writes of a region is remembered in `known`.
    """
    try:
        with quiet("{}", CFKError):
            return _written(entry, factual, names, domains, {} if known is None else known, wording)
    except CFKError as failure:  # its text is the class of what was raised
        _log.warning("an explanation is withheld, as it could not be written: %s", failure)
    return _written(Withheld(entry.query, "protector_failed"), None, (), {}, {}, wording)


def _written(
    entry: Explanation,
    factual: Mapping[str, Any] | None,
    names: Sequence[str],
    domains: Mapping[str, Domain],
    known: Known,
    wording: Wording | None,
) -> dict[str, Any]:
    parts: Mapping[str, Part] = {}
    certificate, reason, told = None, None, None
    if isinstance(entry, Withheld):
        reason, told, names = entry.reason, entry.text(wording=wording), ()
    else:
        parts, certificate = entry.parts(), entry.certificate
        told = None if factual is None else entry.text(factual, wording)
    figures = {name: getattr(certificate, name, None) for name in ("k", "ncp", "pureness")}
    record = {
        "query": entry.query,
        "status": entry.status,
        "reason": reason,
        "sentence": told,
        **figures,
    }
    _require_writable(record)
    return {
        **record,
        "features": [_known_feature(name, parts[name], domains[name], known) for name in names],
    }


def _known_feature(name: str, part: Part, domain: Domain, known: Known) -> dict[str, Any]:
    """Write a feature, or reuse what was written for the very same part."""
    if (found := known.get((name, id(part)))) is None:
        # keeps the part alive, and so its id
        found = known[name, id(part)] = part, _feature(name, part, domain)
        _require_writable(found[1])
    return found[1]


def _require_writable(said: Mapping[str, Any]) -> None:
    """Raise if JSON cannot hold what is said."""
    _STRICT.encode(said).encode()


def _feature(name: str, part: Part, domain: Domain) -> dict[str, Any]:
    low, high, values = None, None, []
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
    else:
        kind, missing = "set", None in part
        values = sorted(str(json_value(v)) for v in part if v is not None and not pd.isna(v))
    return {
        "name": name,
        "kind": kind,
        "low": low,
        "high": high,
        "values": values,
        "missing": missing,
    }
