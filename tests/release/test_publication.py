"""The catalogue as it is published: every entry, and nothing else of the table."""

from __future__ import annotations

import json
import re

import pytest
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

from cfk_plugin import KAnonymizer
from cfk_plugin.cli import app
from cfk_plugin.errors import PolicyError
from cfk_plugin.release.publication import catalogue_page
from worlds import CANARY, World


def test_same_table_publishes_the_same_file(residents: World) -> None:
    """The order of entries depends on what they say, not on how they were found."""
    published = residents.anonymizer.published()
    assert residents.fit().published().to_json() == published.to_json()
    assert not published.to_frame()["ncp"].is_monotonic_increasing


def test_row_outside_entries_is_not_published(residents: World) -> None:
    """Someone alone with a salary and a job widens no range, and their values are in no entry."""
    table = residents.table.assign(
        salary=[987, *residents.table["salary"][1:]], job=["organist", *residents.table["job"][1:]]
    )
    world = World(table, residents.strangers, residents.model, "yes", residents.roles, residents.k)
    published = world.anonymizer.published()
    page = catalogue_page(published, world.population)
    assert f"belong to at least {world.k} people or to no one" in page
    for text in (published.to_frame().to_csv(), published.to_json(), page):
        assert not re.search(rf"\b987\b|organist|{CANARY}", text)


def test_counts_of_the_holder_stay(residents: World) -> None:
    """Neither the table nor the file has an exact count."""
    published = residents.anonymizer.published()
    certificate = json.loads(published.to_json())["explanations"][0]["certificate"]
    counts = {*published.generalized[0].recount.to_dict()} - {*certificate, "k", "l", "t"}
    assert {"k_desired", "k_consistent", "k_effective", "k_private", "majority"} <= counts
    assert not counts & {*published.to_frame().columns, *certificate}


def test_opposite_publishes_every_outcome(residents: World) -> None:
    """There are entries for both labels."""
    published = residents.fit(desired="opposite").published()
    assert {entry.outcome.label for entry in published.generalized} == {"yes", "no"}


def test_only_a_catalogue_is_published(residents: World) -> None:
    """The error says what to do."""
    with pytest.raises(NotFittedError):
        KAnonymizer().published()
    with pytest.raises(PolicyError, match='guarantee="catalogue"'):
        residents.lookup.published()


def test_command_needs_something_to_write() -> None:
    """A file, or a page."""
    command = "catalogue train.csv -s schema.json -m model.joblib -d yes"
    assert CliRunner().invoke(app, command.split()).exit_code == 2
