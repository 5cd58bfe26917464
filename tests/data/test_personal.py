"""Columns that are about who a person is are found by whole words of their names."""

from __future__ import annotations

import pytest

from cfk_plugin.data.personal import age_columns, personal_columns

PERSONAL = """
age Age AGE customer_age age_years ageAtApplication age_cat sex Sex gender Gender_Identity race
Race1 ethnicity ethnic_group nationality Nationality citizenship citizen religion marital-status
marital_status MaritalStatus maritalStatus civil_status personal_status_sex native-country
native.country country_of_origin national_origin foreign_worker dob DOB date_of_birth DateOfBirth
birth_year yearOfBirth birthdate birthday place_of_birth disability is_disabled is_pregnant
sexual_orientation skin_colour loan_applicant_age policy_holder_age age_at_loan age_of_car_owner
car_age_and_owner_age ages races genders sexes ethnicities nationalities religions disabilities
birthdays
"""

OTHERS = """
mileage wage usage usage_percent averages average_balance page stage language_model manager agent
agency percentage sextant essex middlesex racecourse traced embrace generation gendarme
relationship_manager international regional_income status country pay credit account_age
vehicle_age age_of_car color loan_age dobbin accounts_age vehicle-ages policies_age car_age_years
ageOfTheCar age_of_car_in_years houseAge statuses
"""


@pytest.mark.parametrize("name", PERSONAL.split())
def test_personal_name_has_a_word(name: str) -> None:
    """A whole word of it says who a person is, however words are joined."""
    assert personal_columns([name]) == [name]


@pytest.mark.parametrize("name", OTHERS.split())
def test_letters_are_not_a_word(name: str) -> None:
    """Names may contain the letters, or be about a thing."""
    assert personal_columns([name]) == []


def test_personal_names_stay_in_order() -> None:
    """They may have spaces and signs."""
    names = ["date of birth", "pay", "Sex (as registered)", "", "age"]
    assert personal_columns(names) == ["date of birth", "Sex (as registered)", "age"]


def test_age_differs_from_birth() -> None:
    """An age is a number of years."""
    names = ["customer_age", "date_of_birth", "sex", "vehicle_age", "Age", "ages"]
    assert age_columns(names) == ["customer_age", "Age", "ages"]
