"""The comparison notices what matters about a release, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cfk_plugin import Explanations
from cfk_plugin.data.sentences import Message
from cfk_plugin.release import results, withheld
from frozen_records import Recording, StoredRecording, differences, file_of, read, record_of
from frozen_settings import LABEL, Case, fit_counted, loan_population, transform

Change = Callable[[list[dict[str, Any]]], object]

pytestmark = pytest.mark.full_search


def stored() -> StoredRecording:
    """Return a stored recording, as if it had been made with the versions that run now."""
    recording = read(file_of("lookup, label"))
    made_with = Recording().header()["made_with"]
    return StoredRecording({**recording.header, "made_with": made_with}, recording.records)


def recorded_again(change: Change | None = None) -> Recording:
    """Return the stored recording as if it had just been made, with a change."""
    before = stored()
    recording = Recording(records=copy.deepcopy([*before.records]))
    model = type("Model", (), {})()
    model.n_calls = before.header["cost"]["model_calls"]
    model.n_rows = before.header["cost"]["rows_asked"]
    recording.model = model
    if change is not None:
        change(recording.records)
    return recording


def lookup_explanations() -> Explanations:
    recording = Recording()
    anonymizer = fit_counted(loan_population(), LABEL, recording, {"guarantee": "lookup"})
    case = Case.of(LABEL)
    return transform(anonymizer, case.counterfactuals.tail(5), case.factuals.tail(5))


def test_equal_recordings_have_no_difference() -> None:
    assert differences(stored(), recorded_again()) == []


def widen_region(records: list[dict[str, Any]]) -> None:
    records[0]["region"]["age"]["high"] += 1


def lose_a_person(records: list[dict[str, Any]]) -> None:
    records[2]["k"] -= 1


def change_reason(records: list[dict[str, Any]]) -> None:
    withheld = next(record for record in records if "reason" in record)
    withheld["reason"] = "infeasible"


def change_last_digit(records: list[dict[str, Any]]) -> None:
    records[0]["ncp"] *= 1 + 3e-9


def lose_the_last(records: list[dict[str, Any]]) -> None:
    del records[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (widen_region, "transform, explanation 0: region of age was 56 to 64, is 56 to 65"),
        (lose_a_person, "transform, explanation 2: k was 5, is 4"),
        (
            change_reason,
            "transform, explanation 9: was withheld (missing_value), is withheld (infeasible)",
        ),
        (
            change_last_digit,
            "transform, explanation 0: ncp was 0.0533333333, is 0.0533333335",
        ),
        (
            lose_the_last,
            "transform of row 2 alone, explanation 0: the explanation is missing now",
        ),
    ],
)
def test_a_change_is_named(change: Change, message: str) -> None:
    assert differences(stored(), recorded_again(change)) == [message]


def test_another_call_of_the_model_is_a_difference() -> None:
    recording = recorded_again()
    assert recording.model is not None
    recording.model.n_calls += 1
    (difference,) = differences(stored(), recording)
    assert difference.startswith("cost: calls of the model were")


def test_other_versions_may_differ_by_a_billionth() -> None:
    before = stored()
    elsewhere = {**before.header, "made_with": {"python": "3.0"}}
    other = StoredRecording(elsewhere, before.records)

    def change_ninth_digit(records: list[dict[str, Any]]) -> None:
        records[0]["ncp"] *= 1 + 1e-9

    def change_eighth_digit(records: list[dict[str, Any]]) -> None:
        records[0]["ncp"] *= 1 + 1e-7

    assert differences(other, recorded_again(change_ninth_digit)) == []
    assert len(differences(other, recorded_again(change_eighth_digit))) == 1


def test_wording_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [record_of(explanation) for explanation in lookup_explanations()]
    reworded = {
        code: replace(reason, meaning="other words") for code, reason in withheld.REASONS.items()
    }
    monkeypatch.setattr("cfk_plugin.release.withheld.REASONS", reworded)
    another = Message("another sentence", ())
    monkeypatch.setattr(results, "message", lambda *parts: another)
    explanations = lookup_explanations()
    texts = explanations.text(Case.of(LABEL).factuals.tail(5))
    assert "another sentence" in texts
    operator = [entry.text_for_operator() for entry in explanations.withheld]
    assert any(": other words (age); " in text for text in operator)
    assert [record_of(explanation) for explanation in explanations] == before
