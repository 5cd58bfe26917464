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
def test_a_name_with_such_a_word_is_personal(name: str) -> None:
    assert personal_columns([name]) == [name]


@pytest.mark.parametrize("name", OTHERS.split())
def test_a_name_that_only_contains_such_letters_is_not(name: str) -> None:
    assert personal_columns([name]) == []


def test_names_stay_in_order_and_need_not_be_text_alone() -> None:
    assert personal_columns(["sex", "pay", "age"]) == ["sex", "age"]
    assert personal_columns(["date of birth", "Sex (as registered)", ""]) == [
        "date of birth",
        "Sex (as registered)",
    ]


def test_an_age_is_told_from_a_date_of_birth() -> None:
    names = ["customer_age", "date_of_birth", "sex", "vehicle_age", "Age", "ages"]
    assert age_columns(names) == ["customer_age", "Age", "ages"]
