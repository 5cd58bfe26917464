"""A report in the description of a model's version, in a real registry, beside the card of the protected model."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from cfk_plugin import Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.report.delivery import describe_model_version, render_model_card
from cfk_plugin.serving.card import LONGEST, Card
from model_server import free_port
from small_report import check, report, with_head

NAME = "loans explained"


@pytest.fixture
def client(mlflow_store: str) -> MlflowClient:
    """Return a client of a store with one version of a model, described as `log_protected_model` does."""
    client = MlflowClient()
    client.create_registered_model(NAME)
    client.create_model_version(NAME, source="runs:/none/model", description=card())
    return client


def card() -> str:
    rows = pd.DataFrame({"age": np.arange(40) % 10, "pay": 1})
    population = Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age"]))
    return Card(population, PrivacyPolicy(k=5), "opposite", most=100, ledger=False).text(NAME, f"models:/{NAME}/1")


def description(client: MlflowClient) -> str:
    return str(client.get_model_version(NAME, "1").description)


def test_the_card_stays_and_the_report_stands_below(client: MlflowClient) -> None:
    describe_model_version(NAME, "1", render_model_card(report()))
    text = description(client)
    assert text.startswith(card().strip())
    assert "\n## Privacy report: review\n" in text
    assert "\n### Not covered\n" in text
    assert len(text) <= LONGEST


def test_the_next_report_takes_the_place_of_the_last_one(client: MlflowClient) -> None:
    describe_model_version(NAME, "1", render_model_card(report()))
    client.update_model_version(NAME, "1", f"{description(client)}\nA note of ours.\n")
    describe_model_version(NAME, "1", render_model_card(with_head(report(), verdict="fail")))
    text = description(client)
    assert text.startswith(card().strip())
    assert "A note of ours." in text
    assert re.findall("Privacy report: (.*)", text) == ["fail"]


def test_the_same_report_again_changes_nothing(client: MlflowClient) -> None:
    describe_model_version(NAME, "1", render_model_card(report()))
    first = description(client)
    describe_model_version(NAME, "1", render_model_card(report()))
    assert description(client) == first


def test_a_mark_without_its_end_takes_nothing_with_it(client: MlflowClient) -> None:
    describe_model_version(NAME, "1", render_model_card(report()))
    damaged = description(client).replace("<!-- end of cfk report -->", "Our note.")
    client.update_model_version(NAME, "1", damaged)
    describe_model_version(NAME, "1", render_model_card(report(limits=(), groups=(), metrics=(), checks=())))
    describe_model_version(NAME, "1", render_model_card(report(limits=(), groups=(), metrics=(), checks=())))
    text = description(client)
    assert "Our note." in text
    assert text.startswith(card().strip())
    assert text.count("<!-- end of cfk report -->") == 1


@pytest.mark.parametrize("left", [500, 1_200, 2_500])
def test_a_long_description_leaves_room_for_what_comes_first(client: MlflowClient, left: int) -> None:
    own = "n" * (LONGEST - left)
    client.update_model_version(NAME, "1", own)
    describe_model_version(NAME, "1", long_card())
    text = description(client)
    assert text.startswith(own)
    assert "Privacy report: review" in text
    assert "Shortened" in text
    assert len(text) <= LONGEST


def test_without_room_for_the_verdict_the_description_stays(client: MlflowClient) -> None:
    own = "n" * (LONGEST - 200)
    client.update_model_version(NAME, "1", own)
    with pytest.raises(InputError, match="4,800 of 5,000 characters and leaves no room"):
        describe_model_version(NAME, "1", long_card())
    assert description(client) == own


def long_card() -> str:
    checks = tuple(check(f"k_{place}", "review", text="t" * 90) for place in range(9))
    return render_model_card(report(checks=checks, limits=("l" * 190,) * 9))


def test_an_empty_description_is_the_report_alone(client: MlflowClient) -> None:
    client.update_model_version(NAME, "1", "")
    describe_model_version(NAME, "1", render_model_card(report()))
    assert description(client).splitlines()[1] == "## Privacy report: review"


@pytest.mark.parametrize(("name", "version"), [(NAME, "2"), ("nobody", "1"), (NAME, "one")])
def test_an_unknown_version_is_named(client: MlflowClient, name: str, version: str) -> None:
    with pytest.raises(InputError, match=f"no version {version} of a model '{name}'"):
        describe_model_version(name, version, "# x\n")


def test_a_registry_that_is_down_is_an_error_of_tracking() -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        describe_model_version(NAME, "1", "# x\n", f"http://127.0.0.1:{free_port()}")
