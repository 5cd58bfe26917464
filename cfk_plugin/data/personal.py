"""Finds columns that describe who a person is, by their names.

An answer should not ask a person to change these, even if a change is possible, as for marital
status. The list follows the protected characteristics of three laws, as far as tables have columns
with such names:

* Regulation B of the United States, 12 CFR 1002.6(b): race, color, religion, national origin, sex,
  marital status, age;
* Charter of Fundamental Rights of the European Union, article 21: sex, race, color, ethnic or
  social origin, genetic features, language, religion or belief, political opinion, membership of a
  national minority, birth, disability, age, sexual orientation; and nationality;
* Equality Act 2010 of the United Kingdom, section 4: age, disability, gender reassignment, marriage
  and civil partnership, pregnancy and maternity, race, religion or belief, sex, sexual orientation.

A name is only a hint. The data holder has to check every proposal, and every other column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PERSONAL_TERMS: tuple[str, ...] = (
    "age",
    "birth",
    "birthdate",
    "birthday",
    "birthplace",
    "birthyear",
    "citizen",
    "citizenship",
    "civil partnership",
    "civil status",
    "country of origin",
    "disability",
    "disabled",
    "dob",
    "ethnic",
    "ethnicity",
    "family status",
    "foreign worker",
    "gender",
    "genetic",
    "genetics",
    "marital",
    "married",
    "maternity",
    "mother tongue",
    "national origin",
    "nationality",
    "native country",
    "native language",
    "personal status",
    "pregnancy",
    "pregnant",
    "race",
    "religion",
    "religious",
    "sex",
    "sexual orientation",
    "skin color",
    "skin colour",
    "social origin",
)
"""A column describes who a person is if its name contains one of these terms, or its plural.

Only whole words count.
"""

THINGS_WITH_AN_AGE: tuple[str, ...] = (
    "account",
    "building",
    "car",
    "company",
    "contract",
    "device",
    "house",
    "loan",
    "machine",
    "policy",
    "product",
    "property",
    "vehicle",
    "website",
)
"""``account_age`` and ``age_of_car`` do not mean a person's age; ``age_at_loan`` does."""

# A capital letter begins a word: "maritalStatus", "DOBYear".
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")


def personal_columns(names: Iterable[str]) -> list[str]:
    """Return the names of columns that describe who a person is, such as sex or age, in order.

    Parameters
    ----------
    names : iterable of str
        Names of columns. Case and separators between words make no difference.

    Returns
    -------
    list of str

    Examples
    --------
    >>> personal_columns(["customer_age", "wage", "MaritalStatus", "usage_percent"])
    ['customer_age', 'MaritalStatus']
    """
    return [name for name in names if _terms_in(name)]


def age_columns(names: Iterable[str]) -> list[str]:
    """Return the names of columns with a person's age, which changes in only one direction.

    Parameters
    ----------
    names : iterable of str

    Returns
    -------
    list of str
    """
    return [name for name in names if "age" in _terms_in(name)]


def _terms_in(name: str) -> set[str]:
    """Return the terms of `PERSONAL_TERMS` that a name contains as whole words."""
    words = " ".join(word.lower() for word in _WORD.findall(str(name)))
    of_person = _AGE_OF_THING.sub(" ", words)
    # The spaces at both ends make a term match whole words only.
    text = f" {of_person} "
    return {term for term in PERSONAL_TERMS if f" {term} " in text or f" {_plural(term)} " in text}


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    if noun.endswith(("s", "x")):
        return f"{noun}es"
    return f"{noun}s"


_THING = "|".join([*THINGS_WITH_AN_AGE, *map(_plural, THINGS_WITH_AN_AGE)])
# After "age of", a further word may name the person who has the age: "age of loan applicant".
_AGE_OF_THING = re.compile(
    rf"\b(?:{_THING}) ages?\b|\bages? of (?:the )?(?:{_THING})(?: in)?(?: years| months| days)?$"
)
