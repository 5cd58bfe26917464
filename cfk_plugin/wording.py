"""Sentences: what an explanation says to the person who asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Number
from typing import Any

import numpy as np

from cfk_plugin.region import Interval, Part, natural, part_contains, part_to_text


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a change of one attribute is said.

    Attributes
    ----------
    more, less : str
        A numeric change, ``{}`` standing for its size: ``"were {} years older"``.
    equal : str
        Any other change, ``{}`` standing for the new value: ``"lived in {}"``.
    """

    more: str
    less: str
    equal: str

    @classmethod
    def default(cls, name: str) -> Phrase:
        """Return neutral wording for an attribute; an attribute called age is said in years."""
        if name.lower() == "age":
            return cls("were {} years older", "were {} years younger", "were {} years of age")
        label = name.replace("_", " ")
        return cls(f"had {label} higher by {{}}", f"had {label} lower by {{}}", f"had {label} {{}}")


def sentence(
    parts: Mapping[str, Part],
    factual: Mapping[str, Any],
    phrases: Mapping[str, Phrase] | None = None,
    labels: Mapping[str, str] | None = None,
    withheld: Sequence[str] = (),
) -> str:
    """Write a counterfactual explanation as one sentence; attributes that need no change are left out.

    Parameters
    ----------
    parts : mapping
        Attribute to what is released of it; a single value is an `Interval` or set of one.
    factual : mapping
        The values of the person who is told.
    phrases : mapping, optional
        Wording per attribute; `Phrase.default` where not given.
    labels : mapping, optional
        What a part is called, where it has a name (a node of a hierarchy).
    withheld : sequence of str
        Attributes of which nothing is released; they are named at the end.

    Returns
    -------
    str

    Examples
    --------
    >>> sentence({"age": Interval(24, 27), "city": frozenset({"Antwerp"})}, {"age": 21, "city": "Brussels"})
    'If you were 3–6 years older and had city Antwerp, the outcome would be the desired one.'
    """
    known, named = phrases or {}, labels or {}
    changes = [
        _change(part, factual[name], known.get(name) or Phrase.default(name), named.get(name))
        for name, part in parts.items()
        if not part_contains(part, factual[name])
    ]
    remark = ""
    if withheld:
        unsaid = _listed([name.replace("_", " ") for name in withheld])
        remark = f" ({unsaid} {'is' if len(withheld) == 1 else 'are'} withheld)"
    if not changes:
        return f"Nothing in these attributes needs to change for the desired outcome{remark}."
    return f"If you {_listed(changes)}, the outcome would be the desired one{remark}."


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _change(part: Part, value: Any, phrase: Phrase, label: str | None) -> str:
    if label is not None:
        return phrase.equal.format(label)
    if isinstance(part, Interval) and _is_number(part.low) and _is_number(value) and not part.missing:
        nearer, farther = (part.low, part.high) if value < part.low else (part.high, part.low)
        least, most = _apart(nearer, value), _apart(farther, value)
        if least is not None and most is not None:
            return (phrase.more if value < part.low else phrase.less).format(Interval(least, most))
    if isinstance(part, frozenset) and len(part) > 1:
        *first, last = [part_to_text(frozenset({v})) for v in sorted(part, key=str)]
        return phrase.equal.format(f"{', '.join(first)} or {last}")
    return phrase.equal.format(part_to_text(part))


def _is_number(value: object) -> bool:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Number):
        return False
    return value == value  # noqa: PLR0124 - NaN is no number to compare with


def _apart(end: Any, value: Any) -> Any:
    """Return how far a value is from an end; None where adding that, as it is written, does not give this very end."""
    end, value = natural(end), natural(value)
    if isinstance(end, int) and isinstance(value, int):
        return abs(end - value)
    try:
        written = abs(Fraction(str(end)) - Fraction(str(value)))
        apart = float(written)
    except (OverflowError, ValueError):  # an infinity, or too far
        return None
    return apart if Fraction(str(apart)) == written else None
