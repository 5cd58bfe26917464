"""What stays unprotected, in plain sentences that hold for what was released."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cfk_plugin.report.statements.texts import load

_REGIONS = ("nominal", "reciprocal", "catalogue")  # weakest first
_MOST_NAMES = 12


def limits(
    *,
    guarantees: Collection[str],
    has_ledger: bool | None,
    raw_private: Sequence[str] | None,
    prototypes: bool,
    dp_covers: str | None,
    sensitive_declared: bool,
    subject_key: bool | None,
    eligible: bool = False,
) -> tuple[str, ...]:
    """Return what stays unprotected.

    Parameters
    ----------
    guarantees : collection of str
        Of the regions and prototypes in the period.
    has_ledger : bool or None
        Whether a ledger was kept all the time; None where that is not known.
    raw_private : sequence of str or None
        Private attributes that are released as they are; None where that is not known.
    prototypes : bool
        Whether prototypes were released.
    dp_covers : str or None
        What their epsilon covers; see `PrototypeCertificate.covers`.
    sensitive_declared : bool
        Whether the schema names a sensitive attribute.
    subject_key : bool or None
        Whether people are told apart by a key; None where that is not known.
    eligible : bool
        Whether only people with the desired predicted outcome counted, in all policies.

    Returns
    -------
    tuple of str
        Sentences, those about regions first.
    """
    kinds = [kind for kind in _REGIONS if kind in guarantees]
    found: list[str] = []
    if kinds:
        found += [_said(name) for name in _of_knowledge(kinds, eligible)]
        found.append(_said({True: "ledger", False: "no_ledger", None: "ledger_unknown"}[has_ledger]))
        found += [_private(raw_private)] if raw_private is None or raw_private else []
        found.append(_said("sensitive" if sensitive_declared else "no_sensitive"))
        found += [_said("membership"), _said("undeclared")]
        found.append(_said({True: "one_person", False: "rows_counted", None: "rows_unknown"}[subject_key]))
        found.append(_said("one_table"))
    if prototypes:
        found.append(_covers(dp_covers))
        found += [_said("unproven")] if "none" in guarantees else []
        found += [_said("general"), _said("refits"), _said("not_noised")]
    return (*found, _said("model"), _said("process"))


def not_covered(
    *,
    guarantees: Collection[str],
    has_ledger: bool | None,
    raw_private: Sequence[str] | None,
    prototypes: bool,
    dp_covers: str | None,
    eligible: bool = False,
) -> tuple[str, str, str]:
    """Return the three sentences that stand beside the verdict; parameters as for `limits`."""
    kinds = [kind for kind in _REGIONS if kind in guarantees]
    if not kinds:
        return _covers(dp_covers), _said("general"), _said("outside_prototypes")
    variants = {
        "reciprocal": "eligible" if eligible else "reciprocal",
        "catalogue": "catalogue_ledger" if has_ledger else "catalogue",
    }
    attackers = _said(f"short_{variants.get(kinds[0], kinds[0])}")
    values = _said("membership") if raw_private is not None and not raw_private else _private(raw_private)
    return attackers, values, _covers(dp_covers) if prototypes else _said("outside")


def _of_knowledge(kinds: Sequence[str], eligible: bool) -> list[str]:
    """Return the sentences about attackers who know or do more than look up quasi-identifiers."""
    found = ["rerun"] if "nominal" in kinds else []
    if kinds != ["catalogue"]:
        found += ["ask_model", "steering"]
        found += [] if eligible else ["outcomes"]
    if "catalogue" in kinds:
        found += ["steering_catalogue", "catalogue_behind_explainer"]
    return [*found, "other_anchors"] if "reciprocal" in kinds else found


def _private(raw: Sequence[str] | None) -> str:
    if raw is None:
        return _said("raw_private_unknown")
    more = len(raw) - _MOST_NAMES
    names = ", ".join(raw[:_MOST_NAMES])
    return _said("raw_private").replace("{names}", f"{names} and {more} more" if more > 0 else names)


def _covers(covers: str | None) -> str:
    if covers is None:
        return _said("prototypes_unknown")
    return _said("prototypes").replace("{covers}", covers)


def _said(name: str) -> str:
    sentence: str = load("limits")[name]
    return sentence
