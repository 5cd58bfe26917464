"""A published catalogue as one page that finds the nearest entry on the reader's own device, without a network."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Phrase, to_text, told
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.information import ncp_by_attribute
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import GeneralizedCounterfactual


def catalogue_page(
    published: Explanations,
    population: Population,
    *,
    title: str | None = None,
    phrases: Mapping[str, Phrase] | None = None,
) -> str:
    """Return a catalogue as an HTML page in which a person finds the nearest explanation without asking anybody.

    What the person enters stays in the page: it makes no request, and its content policy allows none. Near is what
    `KAnonymizer.explain` calls near, with the ranges of private values that are published. The model is not in the
    page, so what is found need not be true for the person: it says what was verified of the whole entry. It holds what
    `KAnonymizer.published` gives away, and the width of the table's range for each quasi-identifier that is a number.

    Parameters
    ----------
    published : Explanations
        By `KAnonymizer.published`.
    population : Population
        That the catalogue is about.
    title : str, optional
        Heading of the page.
    phrases : mapping, optional
        `Phrase` per attribute, as for `GeneralizedCounterfactual.text`.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If these are no entries of a catalogue.
    """
    policy, entries = published.policy, published.generalized
    if not isinstance(policy, PrivacyPolicy) or policy.guarantee != "catalogue":
        raise InputError("these are no entries of a catalogue; give KAnonymizer.published()")
    schema = population.schema
    known = {**schema.telling.phrases, **(phrases or {})}
    features = [
        _feature(population.domains[name], entries, name in schema.quasi_identifiers, known.get(name))
        for name in sorted(schema.features, key=lambda name: name not in schema.quasi_identifiers)
    ]
    figures = [entry.certificate for entry in entries]
    data = {
        "k": policy.k,
        "features": features,
        "outcomes": _coded(str(entry.outcome) for entry in entries),
        "width": _coded(round(loss, 12) for loss in _half_widths(entries, population)),
        "people": _coded(each.k for each in figures),
        "coarse": _coded(int(bool(each.binned or each.withheld)) for each in figures),
        "pureness": _coded((each.pureness, each.pureness_low, each.pureness_high) for each in figures),
    }
    environment = Environment(
        loader=PackageLoader("cfk_plugin.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = environment.get_template("style.css.j2").render(stack_widths=(32,))
    style += environment.get_template("catalogue.css").render()
    script = environment.get_template("catalogue.js").render()
    return environment.get_template("catalogue.html.j2").render(
        title=title or "What would have to be different?",
        data=data,
        count=len(entries),
        # In a block that is no script for the browser, "<" alone could end it or begin a comment.
        json=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=style,
        script=script,
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _coded(values: Iterable[Hashable]) -> dict[str, list[Any]]:
    """Return each different value once, and which of them is at each place."""
    codes: dict[Hashable, int] = {}
    at = [codes.setdefault(value, len(codes)) for value in values]
    return {"values": [*codes], "at": at}


def _half_widths(entries: Sequence[GeneralizedCounterfactual], population: Population) -> Iterable[float]:
    known: dict[str, float] = {}
    for entry in entries:
        key = repr(entry.region)
        if key not in known:
            known[key] = sum(ncp_by_attribute(entry.region, population).values()) / 2
        yield known[key]


def _feature(
    domain: Domain, entries: Sequence[GeneralizedCounterfactual], is_quasi: bool, phrase: Phrase | None
) -> dict[str, Any]:
    """Return how an attribute is asked for, and what each entry says of it: -1 where that is withheld."""
    name = domain.attribute.name
    phrase = phrase or Phrase.default(name)
    codes: dict[Part, int] = {}
    labels: dict[Part, str | None] = {}
    at = []
    for entry in entries:
        part = entry.parts().get(name)
        at.append(-1 if part is None else codes.setdefault(part, len(codes)))
        if part is not None:
            labels[part] = entry.labels.get(name)
    found = {"name": name, "at": at, "phrase": [phrase.more, phrase.less, phrase.equal]}
    found["change"] = domain.attribute.change
    if domain.is_numeric:
        numbers = [
            to_number(end)
            for part in codes
            if isinstance(part, Interval)
            for end in (part.low, part.high)
            if end is not None
        ]
        span = float(domain.width) if is_quasi else max(numbers, default=0.0) - min(numbers, default=0.0)
        ranges = [_range(part, is_date=domain.is_date) for part in codes]
        return found | {"kind": "date" if domain.is_date else "number", "range": span, "parts": ranges}
    listed = {part: _values(part) for part in codes}
    options = {value for values, _ in listed.values() for value in values}
    in_order = domain.attribute.kind == "ordinal"
    known = options if not is_quasi else {*map(to_text, domain.values)}  # levels of what others can know
    line = [value for value in map(to_text, domain.values) if value in known] if in_order else sorted(options)
    place = {value: i for i, value in enumerate(line)}
    sets = [
        [[place[v] for v in values], missing, told(part, labels[part])] for part, (values, missing) in listed.items()
    ]
    return found | {"kind": "choice", "options": line, "parts": sets}


def _range(part: Part, *, is_date: bool) -> Any:
    """Return both ends, whether missing is inside, and of dates the text; of a single number its text alone."""
    if not isinstance(part, Interval) or part.low is None:
        return [None, None, 1, "missing"]
    if is_date:
        return [to_number(part.low), to_number(part.high), int(part.missing), str(part)]
    low, high = (str(Interval(end, end)) for end in (part.low, part.high))
    return low if low == high and not part.missing else [low, high, int(part.missing)]


def _values(part: Part) -> tuple[list[str], int]:
    """Return the categories inside, as text, and whether missing is."""
    if isinstance(part, Interval):
        return list(part.levels or ()), int(part.missing)
    return [to_text(value) for value in part if value is not None], int(None in part)
