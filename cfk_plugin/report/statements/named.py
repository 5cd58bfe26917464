"""The definitions of what one report shows, and what is said of an attack that this version does not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cfk_plugin.report.data import Attack, Check, Definition, Metric
from cfk_plugin.report.statements.definitions import DEFINITIONS, definition

_CHECK = "attack_"
_FAMILIES = ("membership", "extraction", "attribute_inference")


def definitions_of(
    checks: Iterable[Check], metrics: Iterable[Metric], attacks: Sequence[Attack]
) -> Mapping[str, Definition]:
    """Return the definition of every check, metric and attack, by id; and of figures of attacks that have one.

    What an attack found of a single attribute is defined with the attack.
    """
    ran = {attack.id for attack in attacks}
    names = [*(check.id for check in checks), *(metric.id for metric in metrics)]
    names += [name for name in ran if name.partition("/")[0] not in ran - {name}]
    names += [figure for attack in attacks for figure in attack.figures if figure in DEFINITIONS]
    return {name: _definition(name, attacks) for name in sorted(set(names))}


def _definition(name: str, attacks: Sequence[Attack]) -> Definition:
    """Return what is known of a name: of itself, of the kind of attack that it is one of, or what the audit said."""
    if name in DEFINITIONS:
        return definition(name)
    attack = name.removeprefix(_CHECK)
    prefix = name[: -len(attack)]
    parts = attack.replace("/", "_/").split("_")
    for length in range(len(parts) - 1, 0, -1):
        kind = "_".join(parts[:length])
        if kind.startswith(_FAMILIES) and prefix + kind in DEFINITIONS:
            found = definition(prefix + kind)
            return replace(found, name=f"{found.name}: {' '.join(parts[length:]).removeprefix('/')}")
    if prefix and attack in DEFINITIONS:
        return definition(attack)
    return Definition(
        name=attack.replace("_", " "),
        formula=next((found.scenario for found in attacks if found.id == attack), "not known to this version"),
        range="0 to 1",
        direction="lower is better",
        source="the audit that ran it",
        does_not_say="this version of the report does not know the attack, so nothing but its own words is shown",
    )
