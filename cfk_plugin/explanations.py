"""The result: an immutable sequence of explanations, one per counterfactual asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, overload

import pandas as pd

from cfk_plugin.about import About, Call
from cfk_plugin.counterfactual import (
    Entry,
    Finding,
    GeneralizedCounterfactual,
    Policy,
    Released,
    Suppressed,
)
from cfk_plugin.errors import InputError
from cfk_plugin.figures import figures_of, rate
from cfk_plugin.prototype import PrototypeCounterfactual, PrototypePolicy
from cfk_plugin.tracking import RunLogger

SCHEMA_VERSION = 2


class Explanations(Sequence[Entry]):
    """Explanations in the order asked for; every entry is released with a certificate, or suppressed.

    What is released is of one kind: regions under a `PrivacyPolicy`, or the prototypes of one fit under a
    `PrototypePolicy`.

    Parameters
    ----------
    entries : sequence of GeneralizedCounterfactual, PrototypeCounterfactual or Suppressed
    policy : PrivacyPolicy or PrototypePolicy
    columns : sequence of str
        Features in the training table's order, for `to_frame`.
    findings : sequence, optional
        What detection said of each raw counterfactual; for the data holder, not part of `to_frame` or `to_json`.
    n_people : int, optional
        People in the population, for the discernibility metric.
    provenance : mapping of str, optional
        Settings of the run (method, generator, plugins) for tracking.
    about : About, optional
        What else is known, for tracking.

    Raises
    ------
    InputError
        If an entry is of the other kind than the policy, prototypes are of several fits or their certificate states
        more than the policy allows, or the findings are not one per entry.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        policy: Policy,
        columns: Sequence[str],
        findings: Sequence[Finding | None] | None = None,
        n_people: int = 0,
        provenance: Mapping[str, str] | None = None,
        about: About | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self.policy = policy
        self.columns = tuple(columns)
        self.findings = tuple(findings) if findings is not None else (None,) * len(self._entries)
        self.n_people = n_people
        self.provenance = dict(provenance or {})
        self.about = about or About()
        if len(self.findings) != len(self._entries):
            raise InputError("findings must be one per entry")
        _check_kind(self._entries, policy)

    def __len__(self) -> int:
        """Return the number of counterfactuals asked for."""
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Entry | Explanations:
        """Return one entry, or a slice as `Explanations`."""
        if isinstance(index, slice):
            return self._with(self._entries[index], self.findings[index], self.about[index])
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries."""
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        """Compare entries and policy."""
        if not isinstance(other, Explanations):
            return NotImplemented
        return self._entries == other._entries and self.policy == other.policy

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show counts."""
        return f"Explanations({len(self.released)} released, {len(self) - len(self.released)} suppressed)"

    def _with(self, entries: Sequence[Entry], findings: Sequence[Finding | None], about: About) -> Explanations:
        return Explanations(
            entries,
            policy=self.policy,
            columns=self.columns,
            findings=findings,
            n_people=self.n_people,
            provenance=self.provenance,
            about=about,
        )

    @property
    def released(self) -> tuple[Released, ...]:
        """The entries that are released, of whichever kind."""
        return tuple(e for e in self._entries if not isinstance(e, Suppressed))

    @property
    def generalized(self) -> tuple[GeneralizedCounterfactual, ...]:
        """The released entries that are regions: those with k, NCP and pureness."""
        return tuple(e for e in self._entries if isinstance(e, GeneralizedCounterfactual))

    @property
    def prototypes(self) -> tuple[PrototypeCounterfactual, ...]:
        """The released entries that are prototypes: those with epsilon and delta."""
        return tuple(e for e in self._entries if isinstance(e, PrototypeCounterfactual))

    @property
    def suppressed(self) -> tuple[Suppressed, ...]:
        """The entries that are withheld."""
        return tuple(e for e in self._entries if isinstance(e, Suppressed))

    def for_query(self, query: int) -> tuple[Entry, ...]:
        """Return the entries that answer one query."""
        return tuple(e for e in self._entries if e.query == query)

    def by_group(self, attribute: str, labels: Sequence[Any] | pd.Series) -> Explanations:
        """Return the same explanations with the group of whoever asked, for figures by group of a run.

        Protects nothing: a label goes to the run's records as it is, next to what was released for the query. It is
        a value of the person who asks. Choose an attribute that you may keep. `to_frame` and `to_json` do not have it.

        Parameters
        ----------
        attribute : str
            What the groups are groups of, for example ``sex``.
        labels : sequence
            One per query, in the order of the queries, for example ``queries["sex"]``; a missing one is the group
            ``missing``.

        Returns
        -------
        Explanations

        Raises
        ------
        InputError
            If there are fewer labels than queries, or more than 50 different ones.
        """
        groups = Call.grouped(attribute, labels).groups_of([entry.query for entry in self._entries])
        return self._with(self._entries, self.findings, replace(self.about, attribute=attribute, groups=groups))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: status, features as text, k, NCP, pureness. May leave the host.

        Of prototypes the last three are empty.
        """
        rows = []
        for entry in self._entries:
            row: dict[str, Any] = {"query": entry.query, "status": entry.status, "reason": None}
            if isinstance(entry, Suppressed):
                row["reason"] = entry.reason
            else:
                shown = entry.cells()
                row.update({name: shown.get(name) for name in self.columns})
                row.update({name: getattr(entry.certificate, name, None) for name in _SHOWN})
            rows.append(row)
        return pd.DataFrame(rows, columns=["query", "status", "reason", *self.columns, *_SHOWN])

    def audit_frame(self) -> pd.DataFrame:
        """Return every field of every certificate and the detection's finding. For the data holder only."""
        rows = []
        for entry, finding in zip(self._entries, self.findings, strict=True):
            row: dict[str, Any] = {"query": entry.query, "status": entry.status, "finding": finding}
            if isinstance(entry, Suppressed):
                row["reason"] = entry.reason
            else:
                row.update(entry.certificate.to_dict())
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self, indent: int | None = None) -> str:
        """Return what may leave as JSON, by query; the format is the JSON Schema `explanations-2.schema.json`."""
        asked = Counter(entry.query for entry in self._entries)
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "policy": self.policy.to_dict(),
                "columns": list(self.columns),
                "asked": [{"query": query, "explanations": asked[query]} for query in sorted(asked)],
                "explanations": [entry.to_dict() for entry in sorted(self._entries, key=lambda entry: entry.query)],
            },
            indent=indent,
            allow_nan=False,
            ensure_ascii=False,
        )

    def summary(self) -> dict[str, Any]:
        """Return the figures of the whole set; definitions are in the metrics reference.

        Returns
        -------
        dict
            Counts (``asked``, ``released``, ``suppressed``, ``reasons``), and over the released entries ``k_min``,
            ``k_mean``, ``k_p05``, ``k_desired_min``, ``k_consistent_min``, ``k_effective_min`` (None unless every
            certificate has it), ``k_private_min``, ``ncp_mean``,
            ``ncp_p95``, ``pureness_mean``, ``pureness_min``, ``pureness_low``, ``optimal_rate``,
            ``prosecutor_risk_max``, ``marketer_risk``, ``cdm``, ``cm``; rates ``native_rate``,
            ``native_qi_rate``, ``near_native_rate`` (each counterfactual counts once, by the worst finding),
            ``suppressed_rate``; ``released_native``, which must be 0; ``prototypes``, how many of the released entries
            are some, with ``epsilon`` and ``delta`` of all of them together (None where nothing is guaranteed). A
            figure over no entry is None; so those of regions are for prototypes, ``cdm`` included.
        """
        k = None if isinstance(self.policy, PrototypePolicy) else self.policy.k
        certificates = [e.certificate for e in self.generalized]
        proven = next((e.certificate for e in self.prototypes if e.certificate.guarantee != "none"), None)
        asked, found = len(self), [f for f in self.findings if f is not None]
        return {
            "asked": asked,
            "released": len(self.released),
            "suppressed": len(self.suppressed),
            "reasons": dict(Counter(e.reason for e in self.suppressed)),
            **figures_of(certificates),
            "cdm": None if k is None else sum(c.k for c in certificates) + self.n_people * len(self.suppressed),
            "native_rate": rate([f == "native" for f in found]),
            "native_qi_rate": rate([f == "native-qi" for f in found]),
            "near_native_rate": rate([f == "near-native" for f in found]),
            "suppressed_rate": rate([isinstance(e, Suppressed) for e in self._entries]),
            "released_native": sum(c.k < k for c in certificates if k is not None),
            "prototypes": len(self.prototypes),
            "epsilon": None if proven is None else proven.epsilon,
            "delta": None if proven is None else proven.delta,
        }

    def log(self, logger: RunLogger | None = None, **options: Any) -> str:
        """Log parameters, metrics and the released records to MLflow.

        Parameters
        ----------
        logger : RunLogger, optional
            Where to log. Default: the active MLflow run, or a new one.
        **options
            Settings of a new `RunLogger` when none is given.

        Returns
        -------
        str
            The id of the run.
        """
        return (logger or RunLogger(**options)).log(self)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: the findings and inner counts are for the data holder; write `to_json` instead."""
        raise InputError("Explanations refuse to be pickled; use to_json() or to_frame()")


def _check_kind(entries: Sequence[Entry], policy: Policy) -> None:
    """Refuse entries that the policy does not stand for: its figures would be said of something else."""
    kind = PrototypeCounterfactual if isinstance(policy, PrototypePolicy) else GeneralizedCounterfactual
    if not all(isinstance(entry, (kind, Suppressed)) for entry in entries):
        raise InputError(
            f"a result under a {type(policy).__name__} holds {kind.__name__} and Suppressed alone; "
            "give each kind a result of its own"
        )
    certificates = {e.certificate for e in entries if isinstance(e, PrototypeCounterfactual)}
    if len(certificates) > 1:
        raise InputError("prototypes of several fits: each has a budget of its own, so give each a result of its own")
    if isinstance(policy, PrototypePolicy) and not all(map(policy.allows, certificates)):
        raise InputError("the certificate of the prototypes states another budget or model than the policy allows")


_SHOWN = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
