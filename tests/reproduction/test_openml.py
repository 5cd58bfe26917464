"""Tables from OpenML, read by the real scikit-learn from the files that it keeps of what it loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pandas as pd
import pytest
import yaml

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.tables import fetch_table, read_table
from openml_copies import ADULT, CMC, GERMAN, HEADERS, HEART, keep, made

CANARY = "canary-7f3a"
COPIES = yaml.BaseLoader((files("cfk_plugin.reproduction") / "openml.yaml").read_text("utf-8")).get_single_data()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send whatever asks the network to a port of this machine at which nobody listens."""
    nobody = dict.fromkeys(("http", "https"), "http://127.0.0.1:9")
    # Proxies in the environment come too late where another test has opened an address: urllib keeps its first opener.
    monkeypatch.setattr("urllib.request._opener", build_opener(ProxyHandler(nobody)))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("name", HEADERS)
def test_every_column_and_category_is_told_in_our_words(name: str, tmp_path: Path) -> None:
    theirs = made(HEADERS[name])
    keep(HEADERS[name], theirs, tmp_path)
    table = fetch_table(name, tmp_path)
    assert len(table.frame) == len(theirs)
    assert table.name == name
    assert list(table.frame) == list(COPIES[name]["columns"])
    assert set(table.features) == set(table.frame) - {table.target}
    for ours, told in COPIES[name]["columns"].items():
        if "number" in told:
            assert table.frame[ours].tolist() == theirs[told["number"]].tolist()
            assert table.frame[ours].dtype == "int64"
        else:
            spelled = told.get("spelled", {})
            assert table.frame[ours].tolist() == [spelled.get(str(v), str(v)) for v in theirs[told["text"]]]


def test_outcomes_mean_what_they_mean_in_the_paper(tmp_path: Path) -> None:
    meant = {
        "adult": {">50K": ">50K", "<=50K": "<=50K"},
        "cmc": {"1": "no use", "2": "use", "3": "use"},
        "german": {"good": "good", "bad": "bad"},
        "heart": {"<50": "absent", ">50_1": "present"},
    }
    desired = {"adult": ">50K", "cmc": "no use", "german": "good", "heart": "absent"}
    for name, header in HEADERS.items():
        theirs = made(header)
        keep(header, theirs, tmp_path)
        table = fetch_table(name, tmp_path)
        assert table.frame[table.target].tolist() == [meant[name][value] for value in theirs[header.target]]
        assert table.desired == desired[name]


def test_missing_values_stay_missing(tmp_path: Path) -> None:
    theirs = made(HEART)
    theirs.loc[[0, 5], "ca"] = None
    theirs.loc[[3], "thal"] = None
    keep(HEART, theirs, tmp_path)
    frame = fetch_table("heart", tmp_path).frame
    assert frame.index[frame["major_vessels"].isna()].tolist() == [0, 5]
    assert frame.index[frame["thal"].isna()].tolist() == [3]
    # The parser makes a column of numbers with gaps decimal; its categories are whole all the same.
    assert set(frame["major_vessels"].dropna()) == {"0", "1", "2", "3"}


def test_codes_are_the_same_whether_declared_as_numbers_or_as_categories(tmp_path: Path) -> None:
    theirs = made(CMC)
    keep(CMC, theirs, tmp_path / "categories")
    numbers = replace(CMC, columns={**dict.fromkeys(CMC.columns), CMC.target: CMC.columns[CMC.target]})
    keep(numbers, theirs, tmp_path / "numbers")
    assert fetch_table("cmc", tmp_path / "categories").sha256 == fetch_table("cmc", tmp_path / "numbers").sha256


def test_source_says_where_to_look_it_up(tmp_path: Path) -> None:
    keep(GERMAN, made(GERMAN), tmp_path)
    source = fetch_table("german", tmp_path).source
    assert source == "OpenML data set 31 (credit-g, version 1, licence: Public), https://www.openml.org/d/31"


def test_scikit_learns_own_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    keep(HEART, made(HEART), tmp_path)
    assert len(fetch_table("heart").frame) == 120


@pytest.mark.parametrize("name", ["hospital", "informs"])
def test_without_a_copy_the_error_names_the_way_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no copy of {name}; .*--data FOLDER"):
        fetch_table(name, tmp_path)


def test_without_a_network_there_is_one_clear_error(tmp_path: Path) -> None:
    # The rows alone are not there: what is asked for them is tried again some times, and warnings would be errors here.
    keep(HEART, made(HEART), tmp_path).unlink()
    with pytest.raises(InputError) as caught:
        fetch_table("heart", tmp_path)
    message = str(caught.value)
    assert message.startswith("heart: OpenML's data set 49 could not be loaded (")
    assert "refused" in message
    assert message.endswith("--data FOLDER")


def test_a_category_that_is_new_is_an_error_and_not_shown(tmp_path: Path) -> None:
    header = replace(GERMAN, columns={**GERMAN.columns, "housing": ("rent", "own", CANARY)})
    keep(header, made(header), tmp_path)
    with pytest.raises(InputError, match="column housing holds a category that it did not have") as caught:
        fetch_table("german", tmp_path)
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_number_that_is_none_is_an_error_and_not_shown(tmp_path: Path) -> None:
    header = replace(ADULT, columns={**ADULT.columns, "capital-gain": ("1", CANARY)})
    keep(header, made(header), tmp_path)
    with pytest.raises(InputError, match="column capital-gain holds something that is no number") as caught:
        fetch_table("adult", tmp_path)
    assert CANARY not in str(caught.value)


def test_a_column_that_is_gone_is_named(tmp_path: Path) -> None:
    columns = {name: kind for name, kind in CMC.columns.items() if name != "Media_exposure"}
    header = replace(CMC, columns=columns)
    keep(header, made(header), tmp_path)
    with pytest.raises(InputError, match="it lacks the column Media_exposure"):
        fetch_table("cmc", tmp_path)


@pytest.mark.parametrize("name", HEADERS)
def test_a_copy_of_the_same_rows_is_the_same_table(name: str, tmp_path: Path, shared_data: Path) -> None:
    whole = read_table(name, shared_data)
    from_folder = replace(whole, frame=whole.frame.head(2_000))  # The parser is slow, and adult is long.
    theirs = made(HEADERS[name], rows=len(from_folder.frame))
    columns = dict(HEADERS[name].columns)
    for ours, told in COPIES[name]["columns"].items():
        values = from_folder.frame[ours].astype(object)
        column = told.get("number") or told["text"]
        back = {word: value for value, word in reversed(told.get("spelled", {}).items())}
        theirs[column] = values.map(lambda value, back=back: back.get(value, value))
        columns[column] = columns[column] and tuple(theirs[column].dropna().unique())
    keep(replace(HEADERS[name], columns=columns), theirs, tmp_path)
    from_openml = fetch_table(name, tmp_path)
    pd.testing.assert_frame_equal(from_openml.frame, from_folder.frame)
    assert from_openml.sha256 == from_folder.sha256
    about = json.loads((shared_data / f"{name}.json").read_text())
    assert list(from_openml.features) == about["features"]
    assert from_openml.sensitive == about["sensitive_attribute"]
