"""What is said of a fit: the settings that were asked for, and the certificate of what came of them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from cfk_plugin.prototype import PrototypeCertificate, PrototypePolicy

if TYPE_CHECKING:
    from cfk_plugin.dp.noise import PrivateRows
    from cfk_plugin.dp.prototypes import DPPrototypes
    from cfk_plugin.dp.public import PublicDomain
    from cfk_plugin.dp.published.dpc import DPC


def policy_of(asked: DPPrototypes) -> PrototypePolicy:
    """Return the settings that a guarantee depends on."""
    return PrototypePolicy(
        method="dp",
        epsilon=asked.epsilon,
        delta=asked.delta,
        rows_per_person=asked.rows_per_person,
        model_access=asked.model_access,
        model_epsilon=asked.model_epsilon,
        model_delta=asked.model_delta,
        people=asked.people,
    )


def certificate_of(asked: DPPrototypes, rows: PrivateRows, domain: PublicDomain) -> PrototypeCertificate:
    """Return what is guaranteed: nothing where the noise was seeded or a domain was read from rows.

    The population's fingerprint is not in it: it is computed from the exact table.
    """
    person = "one person" if asked.rows_per_person == 1 else f"one person with up to {asked.rows_per_person} rows"
    holds = not rows.seeded and not domain.inferred
    return PrototypeCertificate(
        guarantee=("approximate" if asked.delta else "pure") if holds else "none",
        epsilon=asked.epsilon,  # what was composed is not above it: the rows refused otherwise
        delta=asked.delta,
        unit=person,
        neighbours=f"tables that differ by {person}, added or removed",
        mechanism=rows.mechanism,
        model_access=asked.model_access,
        model_epsilon=asked.model_epsilon,
        model_delta=asked.model_delta,
        seeded=rows.seeded,
        inferred=domain.inferred,
        reverted=asked.revert,
        fit=secrets.token_hex(8),
    )


def claim_of(published: DPC) -> PrototypeCertificate:
    """Return what the published method claims: an epsilon that an audit refutes, so nothing is guaranteed.

    The audit is tests/integration/test_dpc_leak.py.
    """
    return PrototypeCertificate(
        guarantee="none",
        epsilon=published.epsilon,
        delta=0.0,
        unit="one row, as claimed",
        neighbours="tables that differ in one row, as claimed",
        mechanism=(
            "functional mechanism as published; prototypes without noise; where epsilon 0.025 was claimed, an audit "
            "showed at least 2.41"
        ),
        model_access="private",
        seeded=published.seed is not None,
        fit=secrets.token_hex(8),
    )
