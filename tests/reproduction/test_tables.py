"""Tables from a folder and from OpenML: types, roles, and errors that name file and column but no
value.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pandas as pd
import pytest
import yaml

from cfk_plugin import Population, Schema
from cfk_plugin.errors import InputError
from reproduction import tables
from reproduction.tables import NAMES, fetch_table, load, read_table

CANARY = "canary-7f3a"
ROWS = f"""\
zip,age,level,weight,faith,pay
012,30,1,7,A,low
013,,2,8,B,high
,41,1,9,{CANARY},low
"""
ABOUT: dict[str, Any] = {
    "features": ["age", "zip", "level"],
    "quasi_identifiers": ["age", "zip"],
    "sensitive_attribute": "faith",
    "target": "pay",
    "desired_outcome": "high",
    "source": {"original": "A made table,\nof three rows", "licence": "none; made for this test"},
    "columns": [
        {"name": "zip", "type": "categorical"},
        {"name": "age", "type": "numeric"},
        {"name": "level", "type": "ordinal", "levels": [1, 2]},
        {"name": "weight", "type": "numeric"},
        {"name": "faith", "type": "categorical"},
        {"name": "pay", "type": "categorical"},
    ],
}


def write(folder: Path, about: object = ABOUT, rows: str | bytes = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "made.json").write_text(json.dumps(about))
    content = gzip.compress(rows.encode()) if isinstance(rows, str) else rows
    (folder / "made.csv.gz").write_bytes(content)
    return folder


def message_of(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert CANARY not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


# --- a folder -------------------------------------------------------------------------------------


def test_numbers_are_numbers_all_else_is_text_and_roles_are_the_descriptions(
    tmp_path: Path,
) -> None:
    table = read_table("made", write(tmp_path))
    # The features' order is the description's.
    assert list(table.frame) == ["age", "zip", "level", "faith", "pay"]
    assert table.frame["age"].dtype == float
    assert table.frame["zip"].dropna().tolist() == ["012", "013"]
    assert table.frame["level"].tolist() == ["1", "2", "1"]
    assert table.frame.isna().sum().to_dict() == {
        "age": 1,
        "zip": 1,
        "level": 0,
        "faith": 0,
        "pay": 0,
    }
    assert (table.features, table.quasi_identifiers) == (("age", "zip", "level"), ("age", "zip"))
    assert (table.sensitive, table.target, table.desired) == ("faith", "pay", "high")
    assert table.source == "A made table, of three rows"
    assert repr(table) == "Table(made, 3 rows, 3 features)"


def test_codes_as_outcomes_are_text_and_long_provenance_is_cut_to_one_line(tmp_path: Path) -> None:
    rows = ROWS.replace("low", "0").replace("high", "1")
    source = {"original": "words and " * 200, "licence": "terms and " * 200}
    table = read_table(
        "made", write(tmp_path, {**ABOUT, "desired_outcome": 1, "source": source}, rows)
    )
    assert table.desired == "1"
    assert len(table.source) <= 210


def test_a_folder_or_a_table_that_is_not_there_tells_which_are(tmp_path: Path) -> None:
    assert "nowhere is no folder" in message_of(lambda: read_table("made", tmp_path / "nowhere"))
    assert "there are made" in message_of(lambda: read_table("adult", write(tmp_path / "data")))
    (tmp_path / "data" / "made.csv.gz").unlink()
    assert "there is none at all" in message_of(lambda: read_table("made", tmp_path / "data"))
    write(tmp_path)
    (tmp_path / "made.json").write_text(CANARY)
    assert "made.json cannot be read as JSON" in message_of(lambda: read_table("made", tmp_path))


def test_a_key_that_the_description_lacks_is_named(tmp_path: Path) -> None:
    for key in ABOUT:
        about = {name: value for name, value in ABOUT.items() if name != key}
        message = message_of(lambda about=about: read_table("made", write(tmp_path, about)))  # type: ignore[misc]
        assert message == f"{tmp_path / 'made.json'} lacks the key '{key}'"


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ([ABOUT], "holds no JSON object"),
        ({**ABOUT, "features": "age"}, "'features' is no list of column names"),
        ({**ABOUT, "quasi_identifiers": []}, "'quasi_identifiers' is no list of column names"),
        (
            {**ABOUT, "quasi_identifiers": ["weight"]},
            "quasi-identifiers that are no features: weight",
        ),
        ({**ABOUT, "target": ["pay"]}, "'target' is no text"),
        ({**ABOUT, "source": "UCI"}, "'source' is no object"),
        ({**ABOUT, "source": {"licence": "none"}}, "lacks the key 'original'"),
        ({**ABOUT, "columns": ABOUT["columns"][1:]}, "'columns' does not describe zip"),
        ({**ABOUT, "columns": ["zip"]}, "'columns' is no list of objects"),
        (
            {**ABOUT, "columns": [{"name": "zip", "type": "postal"}]},
            "the type of zip is none of numeric",
        ),
        ({**ABOUT, "desired_outcome": CANARY}, "no row of pay has the desired outcome"),
    ],
)
def test_a_description_that_is_wrong(about: object, expected: str, tmp_path: Path) -> None:
    assert expected in message_of(lambda: read_table("made", write(tmp_path, about)))


# The time in a gzip header is a part of the test's name, and two workers would not agree on it.
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS.replace("zip", "code").replace("faith", "creed"), "asks for: faith, zip"),
        (ROWS.replace("30", CANARY), "column age is described as numeric"),
        (f"{ROWS}1,2,3,4,5,6,{CANARY}\n", "cannot be read as a gzipped CSV file"),
        (
            f"zip,age,level,weight,faith,pay\n1,2,3,4,5,{CANARY},7\n",
            "rows have more fields than the header",
        ),
        (f"{ROWS}014,20,1,6,{CANARY}\n", "the target, column pay, has missing values"),
        (ROWS.encode(), "cannot be read as a gzipped CSV file"),
        (gzip.compress(ROWS.encode(), mtime=0)[:-12], "cannot be read as a gzipped CSV file"),
        (gzip.compress(b"\xff\xfe\x00", mtime=0), "cannot be read as a gzipped CSV file"),
    ],
)
def test_rows_that_do_not_fit(rows: str | bytes, expected: str, tmp_path: Path) -> None:
    message = message_of(lambda: read_table("made", write(tmp_path, rows=rows)))
    assert expected in message
    assert "made.csv.gz" in message


RISKS = {  # as the paper prints them, but for hospital and informs, whose tables are others
    "adult": (3.17, 15.39),
    "cmc": (4.41, 53.77),
    "german": (83.7, 100),
    "heart": (4.62, 79.54),
    "hospital": (6.2, 37.78),
    "informs": (64.86, 100),
}


@pytest.mark.parametrize("name", NAMES)
def test_published_tables_are_read_as_described(name: str, shared_data: Path) -> None:
    table = read_table(name, shared_data)
    about = json.loads((shared_data / f"{name}.json").read_text())
    assert len(table.frame) == about["n_rows"]
    assert table.frame[table.target].value_counts().to_dict() == about["target_counts"]
    described = {column["name"]: column for column in about["columns"]}
    for column in table.frame:
        assert table.frame[column].isna().sum() == described[column]["n_missing"]
        assert table.frame[column].nunique() == described[column]["n_distinct"]
    if name in ("informs", "cmc"):  # a feature that nobody knows
        assert table.sensitive in set(table.features) - set(table.quasi_identifiers)
    rows = table.frame[list(table.features)]
    schema = Schema.from_frame(rows, quasi_identifiers=list(table.quasi_identifiers))
    profile = Population.from_frame(rows, schema).risk_profile(10)
    assert profile.people == len(table.frame)
    assert (100 * profile.unique, 100 * profile.below_k) == pytest.approx(RISKS[name], abs=0.006)


def test_each_table_is_read_when_it_is_its_turn_and_one_that_is_missing_is_told_at_once(
    shared_data: Path, tmp_path: Path
) -> None:
    for name in ("heart", "cmc"):
        for suffix in (".json", ".csv.gz"):
            (tmp_path / f"{name}{suffix}").symlink_to(shared_data / f"{name}{suffix}")
    tables = load(["heart", "cmc"], tmp_path)
    assert next(tables).name == "heart"
    (tmp_path / "cmc.csv.gz").unlink()
    with pytest.raises(InputError, match="has no table cmc"):
        next(tables)
    with pytest.raises(InputError, match="has no table census"):
        load(["heart", "census"], shared_data)
    with pytest.raises(
        InputError, match="no copy of hospital, informs; give a folder that has the tables: --data"
    ):
        load(["heart", "hospital", "informs"])


# --- OpenML: made tables with its headers, read by the real scikit-learn from the files that it
# keeps -----------

COPIES = yaml.BaseLoader(
    Path(tables.__file__).with_name("openml.yaml").read_text("utf-8")
).get_single_data()
# columns, each with the categories that OpenML declares; None for a number
Header = dict[str, tuple[str, ...] | None]


def header_of(name: str) -> Header:
    found: Header = {"not_needed": None}
    for told in COPIES[name]["columns"].values():
        categories = tuple(told.get("spelled", ("some", "two words", "A&B(c)")))
        found[told.get("number") or told["text"]] = None if "number" in told else categories
    if name == "heart":
        found["ca"] = None  # categories of ours, and numbers there
    return found


def made(header: Header, rows: int = 120) -> pd.DataFrame:
    """Draw rows: every declared category stands there, numbers are 0 to 3, as `ca` has them."""
    random = np.random.default_rng(0)
    columns = {}
    for name, categories in header.items():
        values: list[Any] = list(categories) if categories else [0, 1, 2, 3]
        columns[name] = [
            values[place] for place in random.permutation(np.arange(rows) % len(values))
        ]
    return pd.DataFrame(columns, dtype=object)


def keep(name: str, header: Header, frame: pd.DataFrame, home: Path) -> Path:
    """Write a table as if scikit-learn had loaded it to the folder `home`; return the file with its
    rows.
    """
    number, target = (
        COPIES[name]["data_id"],
        COPIES[name]["columns"][COPIES[name]["target"]]["text"],
    )

    def quoted(value: object) -> str:
        return "?" if pd.isna(value) else f"'{value}'" if " " in str(value) else str(value)

    kinds = {
        column: "{" + ",".join(map(quoted, of)) + "}" if of else "REAL"
        for column, of in header.items()
    }
    lines = [
        f"@RELATION {name}",
        *(f"@ATTRIBUTE '{column}' {kind}" for column, kind in kinds.items()),
        "@DATA",
    ]
    lines += [",".join(map(quoted, row)) for row in frame[list(header)].itertuples(index=False)]
    arff, url = (
        "\n".join([*lines, ""]),
        f"https://api.openml.org/data/v1/download/{number}/{name}.arff",
    )
    about = {
        "id": number,
        "name": name,
        "version": "1",
        "format": "ARFF",
        "licence": "Public",
        "status": "active",
    }
    about |= {
        "description": "A made table.",
        "url": url,
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
    }
    features = [
        {
            "index": str(place),
            "name": column,
            "data_type": "nominal" if of else "numeric",
            "is_target": str(column == target).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(int(frame[column].isna().sum())),
        }
        for place, (column, of) in enumerate(header.items())
    ]
    qualities = [{"name": "NumberOfInstances", "value": str(float(len(frame)))}]
    kept = {
        f"api/v1/json/data/{number}": json.dumps({"data_set_description": about}),
        f"api/v1/json/data/features/{number}": json.dumps({"data_features": {"feature": features}}),
        f"api/v1/json/data/qualities/{number}": json.dumps(
            {"data_qualities": {"quality": qualities}}
        ),
        urlparse(url).path.lstrip("/"): arff,
    }
    for path, text in kept.items():
        file = home / "openml" / "openml.org" / f"{path}.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))
    return file


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send whatever asks the network to a port of this machine at which nobody listens."""
    nobody = dict.fromkeys(("http", "https"), "http://127.0.0.1:9")
    # Proxies in the environment come too late where another test has opened an address: urllib
    # keeps its first opener.
    monkeypatch.setattr("urllib.request._opener", build_opener(ProxyHandler(nobody)))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


MEANT = {  # what the outcomes mean in the paper
    "adult": {">50K": ">50K", "<=50K": "<=50K"},
    "cmc": {"1": "no use", "2": "use", "3": "use"},
    "german": {"good": "good", "bad": "bad"},
    "heart": {"<50": "absent", **{f">50_{i}": "present" for i in range(1, 5)}},
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.usefixtures("no_network")
def test_every_column_and_category_is_told_in_our_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = made(header_of(name))
    keep(name, header_of(name), theirs, tmp_path)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))  # its own folder is the default
    (table,) = load([name])
    number = COPIES[name]["data_id"]
    assert table.source == (
        f"OpenML data set {number} ({name}, version 1, licence: Public), https://www.openml.org/d/{number}"
    )
    assert list(table.frame) == list(COPIES[name]["columns"])
    assert set(table.features) == set(table.frame) - {table.target}
    for ours, told in COPIES[name]["columns"].items():
        if "number" in told:
            assert table.frame[ours].tolist() == theirs[told["number"]].tolist()
            assert table.frame[ours].dtype == "int64"
        else:
            spelled = told.get("spelled", {})
            assert table.frame[ours].tolist() == [
                spelled.get(str(v), str(v)) for v in theirs[told["text"]]
            ]
    outcome = COPIES[name]["columns"][table.target]["text"]
    assert table.frame[table.target].tolist() == [MEANT[name][value] for value in theirs[outcome]]
    assert (
        table.desired
        == {"adult": ">50K", "cmc": "no use", "german": "good", "heart": "absent"}[name]
    )


@pytest.mark.usefixtures("no_network")
def test_missing_values_stay_missing_and_codes_are_the_same_however_they_are_declared(
    tmp_path: Path,
) -> None:
    theirs = made(header_of("heart"))
    theirs.loc[[0, 5], "ca"] = None
    theirs.loc[[3], "thal"] = None
    keep("heart", header_of("heart"), theirs, tmp_path)
    frame = fetch_table("heart", tmp_path).frame
    assert frame.index[frame["major_vessels"].isna()].tolist() == [0, 5]
    assert frame.index[frame["thal"].isna()].tolist() == [3]
    # The parser makes a column of numbers with gaps decimal; its categories are whole all the same.
    assert set(frame["major_vessels"].dropna()) == {"0", "1", "2", "3"}
    codes = {"text": tuple("0123"), "number": None}
    found = [header_of("heart") | {"ca": of} for of in codes.values()]
    for of, header in zip(codes, found, strict=True):
        keep("heart", header, theirs, tmp_path / of)
    assert len({fetch_table("heart", tmp_path / of).sha256 for of in codes}) == 1


CHANGED: dict[str, tuple[str, Callable[[Header], Header], str]] = {
    "a new category": (
        "german",
        lambda columns: {**columns, "housing": ("rent", "own", CANARY)},
        "column housing holds a category that it did not have",
    ),
    "no number": (
        "adult",
        lambda columns: {**columns, "capital-gain": ("1", CANARY)},
        "column capital-gain holds something that is no number",
    ),
    "a column less": (
        "cmc",
        lambda columns: {name: of for name, of in columns.items() if name != "Media_exposure"},
        "it lacks the column Media_exposure",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
@pytest.mark.usefixtures("no_network")
def test_a_copy_that_changed_is_an_error_that_shows_no_value(what: str, tmp_path: Path) -> None:
    name, change, said = CHANGED[what]
    header = change(header_of(name))
    keep(name, header, made(header), tmp_path)
    assert said in message_of(lambda: fetch_table(name, tmp_path))


@pytest.mark.usefixtures("no_network")
def test_without_a_network_there_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it is tried again some times
    monkeypatch.setattr("sklearn.datasets._openml.time.sleep", lambda _: None)
    # the rows alone are not there
    keep("heart", header_of("heart"), made(header_of("heart")), tmp_path).unlink()
    message = message_of(lambda: fetch_table("heart", tmp_path))
    assert message.startswith("heart: OpenML's data set 49 could not be loaded (")
    assert "refused" in message
    assert message.endswith("--data FOLDER")


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.usefixtures("no_network")
def test_a_copy_of_the_same_rows_is_the_same_table(
    name: str, tmp_path: Path, shared_data: Path
) -> None:
    whole = read_table(name, shared_data)
    # The parser is slow, and adult is long.
    from_folder = replace(whole, frame=whole.frame.head(2_000))
    header = header_of(name)
    theirs = made(header, rows=len(from_folder.frame))
    for ours, told in COPIES[name]["columns"].items():
        values = from_folder.frame[ours].astype(object)
        column = told.get("number") or told["text"]
        back = {word: value for value, word in reversed(told.get("spelled", {}).items())}
        theirs[column] = values.map(lambda value, back=back: back.get(value, value))
        header[column] = header[column] and tuple(theirs[column].dropna().unique())
    keep(name, header, theirs, tmp_path)
    from_openml = fetch_table(name, tmp_path)
    pd.testing.assert_frame_equal(from_openml.frame, from_folder.frame)
    assert from_openml.sha256 == from_folder.sha256
    about = json.loads((shared_data / f"{name}.json").read_text())
    assert list(from_openml.features) == about["features"]
    assert from_openml.sensitive == about["sensitive_attribute"]
