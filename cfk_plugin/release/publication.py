"""A published catalogue: a table that can be read back and recounted, and a page to search it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import (
    Interval,
    Part,
    natural,
    part_from_dict,
    part_of,
    part_to_text,
    to_text,
)
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sentences import advised_part
from cfk_plugin.data.values import to_number
from cfk_plugin.data.wording import values_of
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.information import ncp_by_attribute
from cfk_plugin.protection.partition.region_distance import OUTSIDE
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.released_file import Finding
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual

_FIGURES = ("k", "ncp", "pureness", "pureness_low", "pureness_high", "exact")
_FLOORS = ("k_desired_at_least", "k_consistent_at_least")
_ORDER_FIELDS = ("outcome", "region", "released", "withheld")
_ENTRY = "entry"  # JSON of an entry, as files have it
_CATALOGUE = "catalogue"  # JSON of what all entries have in common
# Sections of a language that the page writes sentences with.
_LANGUAGE_OF_PAGE = ("numbers", "dates", "values", "changes", "answers")
_ROUNDED = 0.005 + 1e-9  # how much a figure with two decimals may be off
# Columns of the table besides the features.
_OWN_COLUMNS = ("outcome", *_FIGURES, *_FLOORS, _ENTRY, _CATALOGUE)


def publish(entries: Iterable[Explanation]) -> list[GeneralizedCounterfactual]:
    """Return the released entries of a catalogue, each once, sorted by what they say.

    So the order says nothing else.
    """
    return numbered(distinct_entries(entries).values())


def distinct_entries(entries: Iterable[Explanation]) -> dict[int, GeneralizedCounterfactual]:
    """Return what `publish` does, in its order, by the position of each among all entries."""
    position = dict[tuple[float, str], int]()
    released = dict[int, GeneralizedCounterfactual]()
    for i, entry in enumerate(entries):
        if isinstance(entry, GeneralizedCounterfactual):
            position[order_key(entry.to_dict())] = i
            released[i] = entry
    return {position[key]: released[position[key]] for key in sorted(position)}


def numbered(entries: Iterable[GeneralizedCounterfactual]) -> list[GeneralizedCounterfactual]:
    """Return entries with their positions as their numbers."""
    return [entry.with_query(number) for number, entry in enumerate(entries)]


def order_key(entry: Mapping[str, Any]) -> tuple[float, str]:
    """Return what the order of a catalogue's entries goes by; no two entries have the same."""
    text = json.dumps([entry[name] for name in _ORDER_FIELDS], sort_keys=True)
    return entry["certificate"]["ncp"], text


def wrong_order(content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield where entries of a catalogue are repeated, withheld, or not in their order."""
    entries = content["explanations"]
    if any(entry["status"] != "released" for entry in entries):
        yield Finding("explanations", "are withheld in part; a catalogue has released entries only")
        return
    for i, (entry, next_entry) in enumerate(pairwise(entries)):
        if order_key(entry) == order_key(next_entry):
            yield Finding(f"explanation {i + 1}", "is the same entry as the one before it")
        elif order_key(entry) > order_key(next_entry):
            yield Finding(f"explanation {i + 1}", "is not in the order of a catalogue's entries")


def wrong_short_catalogue(content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield where the figures of a short catalogue contradict its entries, or each other."""
    if "short_catalogue" not in content:
        return
    short_catalogue = content["short_catalogue"]
    n_entries = short_catalogue["entries"]
    if n_entries != len(content["explanations"]) or n_entries > short_catalogue["of"]:
        yield Finding("short_catalogue", "does not have as many entries as it says")
    numbers = [rule["query"] for rule in short_catalogue["rules"]]
    if len(set(numbers)) < len(numbers) or max(numbers) >= n_entries:
        yield Finding("short_catalogue.rules", "are not different entries of it")
    if short_catalogue["relative_cost"] > 1 + short_catalogue["within"] + _ROUNDED:
        yield Finding("short_catalogue.relative_cost", "is above what within allows")
    if short_catalogue["reached_by_rules"] > short_catalogue["reached"]:
        yield Finding("short_catalogue.reached_by_rules", "is above what all entries reach")


def table_of(text: str) -> pd.DataFrame:
    """Return a row per entry of a catalogue's JSON: readable cells, and the entry as JSON for
    `content_of`.
    """
    content = json.loads(text)
    entries = content["explanations"]
    k = content["policy"]["k"]
    head = {name: value for name, value in content.items() if name not in ("asked", "explanations")}
    head["entries"] = len(entries)
    cells_of_entries = [_cells(entry) for entry in entries]
    columns: dict[str, list[Any]] = {
        "outcome": [str(Outcome.of(entry["outcome"])) for entry in entries]
    }
    for name in content["columns"]:
        heading = f"feature.{name}" if name in _OWN_COLUMNS else name
        columns[heading] = [cells.get(name, "") for cells in cells_of_entries]
    columns |= {name: [entry["certificate"][name] for entry in entries] for name in _FIGURES}
    columns |= dict.fromkeys(_FLOORS, [k] * len(entries))
    columns[_ENTRY] = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    columns[_CATALOGUE] = [json.dumps(head, ensure_ascii=False)] * len(entries)
    return pd.DataFrame(columns)


def _cells(entry: Mapping[str, Any]) -> dict[str, str]:
    parts = {name: part_from_dict(part) for name, part in entry["region"].items()}
    for name, value in entry["released"].items():
        if isinstance(value, dict):
            parts[name] = Interval(value["low"], value["high"])
        else:
            parts[name] = part_of(value)
    cells = {name: part_to_text(part) for name, part in parts.items()}
    return cells | dict.fromkeys(entry["withheld"], "withheld")


def content_of(table: pd.DataFrame, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a file of released explanations from the JSON columns of a catalogue's
    table.
    """
    missing_columns = [name for name in (_ENTRY, _CATALOGUE) if name not in table.columns]
    if missing_columns:
        names = " and no column ".join(missing_columns)
        raise InputError(f"not a table of `cfk catalogue`: it has no column {names}")
    if table.empty:
        raise InputError("holds no entry of a catalogue")
    head = parse(str(table[_CATALOGUE].iloc[0]))
    n_entries = head.pop("entries", None)
    if type(n_entries) is not int or not 0 < n_entries <= 2 * len(table):
        raise InputError(
            "the column catalogue does not say how many entries there are, or says far more"
        )
    if head.get("kind") != "catalogue":
        raise InputError("its kind is not catalogue, and only catalogues are written as tables")
    requests = [{"query": query, "explanations": 1} for query in range(n_entries)]
    entries = [parse(str(text)) for text in table[_ENTRY]]
    return {**head, "asked": requests, "explanations": entries}


def wrong_table(
    table: pd.DataFrame, content: Mapping[str, Any], features: Sequence[str]
) -> Iterator[Finding]:
    """Yield where the readable cells of a table differ from its entries; name only `features`."""
    expected_table = table_of(json.dumps(content))
    if sorted(table.columns) != sorted(expected_table.columns):
        yield Finding("columns", "are not those of a catalogue's table")
        return
    known_columns = {*_OWN_COLUMNS, *features, *(f"feature.{name}" for name in features)}
    for name in expected_table.columns:
        cells = table[name].map(str).to_numpy()
        is_different = cells != expected_table[name].map(str).to_numpy()
        printed_name = name if name in known_columns else "a column that is not known"
        yield from (
            Finding(f"explanation {i}", f"{printed_name} is not what its entry says")
            for i in np.flatnonzero(is_different)
        )


def catalogue_page(
    published: Explanations,
    population: Population,
    *,
    title: str | None = None,
) -> str:
    """Return a catalogue as an HTML page in which a person finds the nearest explanation without
    asking anybody.

    What the person enters stays in the page: it makes no request, and its content policy allows
    none. Near is what `KAnonymizer.explain` calls near, with the ranges of the published private
    values. The page does not contain the model, so an answer need not be true for the person: the
    page states what was verified of the whole entry. Of a short catalogue it shows the rules first.
    It holds what `KAnonymizer.published` gives
    away, and for each numeric quasi-identifier the width of the table's range.

    Parameters
    ----------
    published : Explanations
        By `KAnonymizer.published`.
    population : Population
        That the catalogue is about.
    title : str, optional
        Heading of the page.

    Raises
    ------
    InputError
        If these are not entries of a catalogue.
    """
    policy = published.policy
    entries = published.generalized
    if not isinstance(policy, PrivacyPolicy) or not promise_of(policy.guarantee).can_be_published:
        raise InputError("these are no entries of a catalogue; give KAnonymizer.published()")
    schema = population.schema
    wording = schema.wording
    features = [
        _feature(population.domains[name], entries, schema)
        for name in sorted(schema.features, key=lambda name: name not in schema.quasi_identifiers)
    ]
    certificates = [entry.certificate for entry in entries]
    is_coarse = [bool(entry.recount.binned or entry.recount.withheld) for entry in entries]
    data = {
        "k": policy.k,
        "features": features,
        "outcomes": _coded(str(entry.outcome) for entry in entries),
        "clauses": _coded(wording.outcome(entry.outcome) for entry in entries),
        "percent": wording.language.unit("percent").other,
        "language": {name: wording.language.sections[name] for name in _LANGUAGE_OF_PAGE},
        "width": _coded(round(loss, 12) for loss in _half_widths(entries, population)),
        "people": _coded(certificate.k for certificate in certificates),
        "coarse": _coded(map(int, is_coarse)),
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
        rules=_rules_on_page(published),
        shares_values=policy.private_values == "shared",
        # In a data block, only "<" could end it or begin a comment.
        json=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=style,
        script=script,
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
    )


def _rules_on_page(published: Explanations) -> list[dict[str, str]]:
    """Return the rules of a short catalogue as the page shows them; none of a whole catalogue."""
    if published.short_catalogue is None:
        return []
    return [
        {
            "text": published.generalized[rule.query].message().lead,
            "reached": f"{rule.reached:.0%}",
            "distance": f"{rule.distance:.2f}",
        }
        for rule in published.short_catalogue.rules
    ]


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _coded(values: Iterable[Hashable]) -> dict[str, list[Any]]:
    """Return the distinct values, and the position of each item's value among them."""
    codes: dict[Hashable, int] = {}
    positions = [codes.setdefault(value, len(codes)) for value in values]
    return {"values": [*codes], "at": positions}


def _half_widths(
    entries: Sequence[GeneralizedCounterfactual], population: Population
) -> Iterable[float]:
    half_widths: dict[str, float] = {}  # by region as text
    for entry in entries:
        key = repr(entry.region)
        if key not in half_widths:
            half_widths[key] = sum(ncp_by_attribute(entry.region, population).values()) / 2
        yield half_widths[key]


def _feature(
    domain: Domain,
    entries: Sequence[GeneralizedCounterfactual],
    schema: Schema,
) -> dict[str, Any]:
    """Return the form field of an attribute, and what each entry says of it: -1 where it is
    withheld.
    """
    name = domain.attribute.name
    is_quasi = name in schema.quasi_identifiers
    wording = schema.wording
    codes: dict[Part, int] = {}
    titles: dict[Part, str | None] = {}
    codes_of_entries = []
    for entry in entries:
        part = entry.parts().get(name)
        if part is None:
            codes_of_entries.append(-1)
            continue
        codes_of_entries.append(codes.setdefault(part, len(codes)))
        titles[part] = entry.titles.get(name)
    form_field: dict[str, Any] = {
        "name": name,
        "at": codes_of_entries,
        "described": [_described(name, part, titles[part], schema) for part in codes],
        "chosen": name not in schema.nobody_chooses,
        "worded": len(wording.words(name)) > 0,
    }
    form_field |= {"change": domain.attribute.change, "outside": OUTSIDE if is_quasi else 0}
    never_advised = schema.never_advised.get(name, frozenset())
    form_field["never"] = {"codes": [], "missing": None in never_advised}
    if domain.is_numeric:
        numbers = [
            to_number(end)
            for part in codes
            if isinstance(part, Interval)
            for end in (part.low, part.high)
            if end is not None
        ]
        if is_quasi:
            span = float(domain.width)
        else:
            span = max(numbers, default=0.0) - min(numbers, default=0.0)
        ranges = [_range(part, is_date=domain.is_date) for part in codes]
        return form_field | {
            "kind": "date" if domain.is_date else "number",
            "range": span,
            "parts": ranges,
            "unit": asdict(wording.unit(name)),
            "own": wording.form_of_current_value(name),
            "named": wording.words(name),
            "unsaid": [wording.has_declared_words(name, part) for part in codes],
        }
    contents = {part: _values(part) for part in codes}
    texts = {text for texts_inside, _ in contents.values() for text in texts_inside}
    options = sorted(texts)
    if domain.attribute.kind == "ordinal":
        levels = [to_text(level) for level in domain.values]
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
    # As they were released: True is said as "yes", and not as "True".
    value_of_text = {to_text(value): value for part in codes for value in values_of(part)}
    if is_quasi:
        value_of_text |= {to_text(value): value for value in domain.values}
    words = []
    for option in options:
        value = natural(value_of_text[option])
        words.append(wording.current_value(name, value, frozenset({value})))
    form_field["never"]["codes"] = [
        position[option] for option in options if option in never_advised
    ]
    return form_field | {"kind": "choice", "options": options, "parts": sets, "words": words}


def _described(name: str, part: Part, title: str | None, schema: Schema) -> str:
    """Return what an entry asks of a column in words, without values that are never advised."""
    advised = advised_part(part, schema.never_advised.get(name, frozenset()))
    title_of_advised = title if advised == part else None
    return schema.wording.described(name, advised, title_of_advised)


def _range(part: Part, *, is_date: bool) -> Any:
    """Return both ends, whether missing is inside and, for dates, the text; for a single number
    only its text.
    """
    if not isinstance(part, Interval) or part.low is None:
        return [None, None, 1, "missing"]
    if is_date:
        return [to_number(part.low), to_number(part.high), int(part.missing), part_to_text(part)]
    low, high = (str(Interval(end, end)) for end in (part.low, part.high))
    return low if low == high and not part.missing else [low, high, int(part.missing)]


def _values(part: Part) -> tuple[list[str], int]:
    """Return the categories inside, as text, and whether missing is inside."""
    if isinstance(part, Interval):
        return list(part.levels or ()), int(part.missing)
    return [to_text(value) for value in part if value is not None], int(None in part)
