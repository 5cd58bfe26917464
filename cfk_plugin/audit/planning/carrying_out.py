"""All audits that were planned, one after another, on everybody who answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.planning.audits import AUDITS, AuditTask, Report, Scope
from cfk_plugin.audit.planning.plan import Plan
from cfk_plugin.audit.running import Kept
from cfk_plugin.hookspecs import Progress


def run_planned(
    owners: Sequence[Owner],
    sample: Sample,
    scope: Scope,
    planned: Plan,
    *,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, str, Report]]:
    """Run what was planned and yield each report as soon as it is there.

    Parameters
    ----------
    owners : sequence of Owner
        Of different names.
    sample : Sample
    scope : Scope
    planned : Plan
        Of `plan`, for the same owners and people.
    seed : int
    n_jobs : int
        Trainings at the same time.
    kept : Kept, optional
        From which a stopped run goes on. Owners are told apart by their names: use a folder for each set of them.
    progress : callable, optional
        Called with (done, total) pieces of the audit that runs.

    Yields
    ------
    owner, audit : str
    report : AttackReport or AuditReport
    """
    known = {owner.name: owner for owner in owners}
    for owner, audit in planned.seconds:
        options = {"seed": seed, "n_jobs": n_jobs, "kept": kept, "progress": progress}
        yield owner, audit, AUDITS[audit].run(AuditTask(known[owner], sample, planned.sizes, scope), **options)
