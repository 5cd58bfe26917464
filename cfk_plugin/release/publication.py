"""An HTML page where a person can search a published catalogue."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict
from decimal import Decimal
from hashlib import sha256
from typing import Any

from cfk_plugin.data.codes import Column
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Interval, Part, natural, part_to_text, to_number, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sentences import advised_part
from cfk_plugin.data.wording import Language, UnitTexts, values_of
from cfk_plugin.errors import InputError
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import GeneralizedCounterfactual

OUTSIDE = 0.1
"""The distance that the page adds for each quasi-identifier outside a region."""

# Sections of a language that the page writes sentences with.
_LANGUAGE_OF_PAGE = ("numbers", "dates", "values", "changes", "answers")


def catalogue_page(
    published: Explanations,
    population: Population,
    *,
    title: str | None = None,
) -> str:
    """Return a catalogue as an HTML page where a person can find the nearest explanations.

    The person's entries stay in the browser: the page makes no request, and its content policy
    allows none. The page has no more content than `KAnonymizer.published`.

    An explanation is near if the person must change little to be inside its region and to have its
    private values, and if its region is small. Differences of numbers are shares of the range of
    the published values. The page does not contain the model, so an explanation need not be true
    for the person; the page shows the figures that were verified for the whole region.

    Parameters
    ----------
    published : Explanations
        The result of `KAnonymizer.published`.
    population : Population
        The population of the catalogue.
    title : str, optional
        The heading of the page.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If `published` is not a published catalogue.
    """
    policy = published.policy
    entries = published.generalized
    if not isinstance(policy, PrivacyPolicy) or not promise_of(policy.guarantee).can_be_published:
        raise InputError("these are not entries of a catalogue; give KAnonymizer.published()")
    schema = population.schema
    wording = schema.wording
    features = [
        _feature(column, entries, schema)
        for column in sorted(
            population.row_codes.columns, key=lambda column: not column.is_quasi_identifier
        )
    ]
    certificates = [entry.certificate for entry in entries]
    n_quasi = len(schema.quasi_identifiers)
    data = {
        "k": policy.k,
        "features": features,
        "outcomes": _coded(str(entry.outcome) for entry in entries),
        "clauses": _coded(wording.outcome(entry.outcome) for entry in entries),
        "percent": wording.language.unit("percent").other,
        "language": {name: wording.language.sections[name] for name in _LANGUAGE_OF_PAGE},
        "plurals": _plurals_of_page(wording.language),
        "width": _coded(certificate.ncp * n_quasi / 2 for certificate in certificates),
        "pureness": _coded(
            (certificate.pureness, certificate.pureness_low, certificate.pureness_high)
            for certificate in certificates
        ),
    }
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
        # "<" could end the data block or begin a comment
        json=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=style,
        script=script,
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _coded(values: Iterable[Hashable]) -> dict[str, list[Any]]:
    """Return the distinct values, and for each value its position among them."""
    codes: dict[Hashable, int] = {}
    positions = [codes.setdefault(value, len(codes)) for value in values]
    return {"values": [*codes], "at": positions}


def _feature(
    column: Column,
    entries: Sequence[GeneralizedCounterfactual],
    schema: Schema,
) -> dict[str, Any]:
    """Return the form field of a column, and the column's part in each entry."""
    name = column.name
    is_quasi = column.is_quasi_identifier
    wording = schema.wording
    codes: dict[Part, int] = {}
    titles: dict[Part, str | None] = {}
    codes_of_entries = []
    for entry in entries:
        part = entry.parts()[name]
        codes_of_entries.append(codes.setdefault(part, len(codes)))
        titles[part] = entry.titles.get(name)
    form_field: dict[str, Any] = {
        "name": name,
        "at": codes_of_entries,
        "described": [_described(name, part, titles[part], schema) for part in codes],
        "chosen": name not in schema.nobody_chooses,
        "worded": len(wording.words(name)) > 0,
    }
    form_field |= {"change": column.attribute.change, "outside": OUTSIDE if is_quasi else 0}
    never_advised = schema.never_advised.get(name, frozenset())
    form_field["never"] = {"codes": [], "missing": None in never_advised}
    if column.is_numeric:
        numbers = [
            to_number(end)
            for part in codes
            if isinstance(part, Interval)
            for end in (part.low, part.high)
            if end is not None
        ]
        span = max(numbers, default=0.0) - min(numbers, default=0.0)
        ranges = [_range(part, is_date=column.kind == "date") for part in codes]
        return form_field | {
            "kind": "date" if column.kind == "date" else "number",
            "range": span,
            "parts": ranges,
            "unit": _unit_of_page(wording.unit(name)),
            "counted": wording.counts(name),
            "named": wording.words(name),
            "unsaid": [wording.has_declared_words(name, part) for part in codes],
        }
    contents = {part: _values(part) for part in codes}
    texts = {text for texts_inside, _ in contents.values() for text in texts_inside}
    options = sorted(texts)
    if column.kind == "ordinal":
        levels = [to_text(level) for level in column.values]
        # All levels of a quasi-identifier are public.
        options = [level for level in levels if is_quasi or level in texts]
    position = {option: i for i, option in enumerate(options)}
    sets = [
        [
            [position[text] for text in texts_inside],
            missing,
            titles[part] or part_to_text(part),
        ]
        for part, (texts_inside, missing) in contents.items()
    ]
    # the values themselves and not their texts, because the wording of True is "yes"
    value_of_text = {to_text(value): value for part in codes for value in values_of(part)}
    if is_quasi:
        value_of_text |= {to_text(value): value for value in column.values if value is not None}
    words = []
    for option in options:
        value = natural(value_of_text[option])
        words.append(wording.current_value(name, value, frozenset({value})))
    form_field["never"]["codes"] = [
        position[option] for option in options if option in never_advised
    ]
    return form_field | {"kind": "choice", "options": options, "parts": sets, "words": words}


def _plurals_of_page(language: Language) -> dict[str, Any]:
    """Return the plural categories, and for each number the position of its category as a digit."""
    positions = "".join(map(str, language.plural_rule))
    return {"categories": language.plural_categories, "positions": positions}


def _unit_of_page(unit: UnitTexts) -> dict[str, Any]:
    """Return the texts of a unit, and the factor of its numbers as decimal text."""
    texts = {name: text for name, text in asdict(unit).items() if text is not None}
    return texts | {"times": format(Decimal(unit.times), "f")}


def _described(name: str, part: Part, title: str | None, schema: Schema) -> str:
    """Return a column's part in words, without values that the schema never advises."""
    advised = advised_part(part, schema.never_advised.get(name, frozenset()))
    title_of_advised = title if advised == part else None
    return schema.wording.described(name, advised, title_of_advised)


def _range(part: Part, *, is_date: bool) -> Any:
    """Return the ends of a range and 1 if missing values are inside; for dates also the text.

    A single number is only its text.
    """
    if not isinstance(part, Interval) or part.low is None:
        return [None, None, 1, "missing"]
    if is_date:
        return [to_number(part.low), to_number(part.high), int(part.missing), part_to_text(part)]
    low, high = (str(Interval(end, end)) for end in (part.low, part.high))
    return low if low == high and not part.missing else [low, high, int(part.missing)]


def _values(part: Part) -> tuple[list[str], int]:
    """Return the categories of a part as text, and 1 if missing values are inside."""
    if isinstance(part, Interval):
        return list(part.levels or ()), int(part.missing)
    return [to_text(value) for value in part if value is not None], int(None in part)
