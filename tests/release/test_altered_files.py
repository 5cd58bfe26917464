"""Thousands of altered files, and which of them `cfk verify` lets pass.

Every file here was honest before one thing in it was altered: a value, the structure, the order,
the encoding, or the container. With the training rows, the model and --rerun a published catalogue
passes only if it still says the same. What else can pass is listed below, and in the documentation.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin._files import read_released
from cfk_plugin.errors import BundleError, CFKError
from cfk_plugin.release.publication import table_of
from cfk_plugin.release.recount import Judge, examine
from cfk_plugin.release.released_file import require_version

FEATURES = ["age", "sex", "pay", "job"]
PRIVATE = ["pay", "job"]
KEY = b"the key of these tests"


def people() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    n = 80
    return pd.DataFrame(
        {
            "age": draw.integers(20, 60, n),
            "sex": draw.choice(["f", "m"], n),
            "pay": draw.integers(100, 900, n) * 10,
            "job": draw.choice(["clerk", "nurse", "smith"], n),
        }
    )


@dataclass(frozen=True)
class Case:
    """Honest files, and what they are verified with."""

    rows: pd.DataFrame
    judge: Judge
    files: dict[str, bytes]

    def verdict(self, name: str, content: bytes, *, rerun: bool) -> str:
        """Return what `cfk verify` says; a file that it refuses fails."""
        suffix = name.partition(".")[2]
        try:
            read = read_released(content, Path(f"altered.{suffix}"))
            require_version(read.content)
        except CFKError:
            return "fail"
        return examine(
            read.content, self.judge.population, self.judge, rerun=rerun, table=read.table
        ).verdict


@pytest.fixture(scope="module")
def case() -> Case:
    rows = people()
    schema = Schema.from_frame(rows, quasi_identifiers=["age", "sex"])
    population = Population.from_frame(rows, schema, key=KEY)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0)
    accepted = rows["pay"] + 50 * rows["age"] > 6_000

    def numbers(table: pd.DataFrame) -> np.ndarray:
        return table[["age", "pay"]].to_numpy(dtype=float)

    tree.fit(numbers(rows), accepted)

    def model(table: pd.DataFrame) -> np.ndarray:
        return tree.predict(numbers(table))

    rejected = rows[~model(rows)]
    of_catalogue = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired=True)
    of_groups = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="reciprocal"))
    of_groups.fit(population, model, desired=True)
    published = of_catalogue.published().to_json(indent=1)
    table = table_of(published)
    files = {
        "catalogue.json": published.encode(),
        "catalogue.csv": table.to_csv(index=False).encode(),
        "catalogue.parquet": as_parquet(pa.Table.from_pandas(table, preserve_index=False)),
        "answers.json": of_catalogue.explain(rejected.head(4)).to_json().encode(),
        "counterfactuals.json": of_groups.transform(
            pd.concat([rows[model(rows)].head(3), rejected.head(1)])
        )
        .to_json()
        .encode(),
    }
    return Case(rows, Judge(population, model, True), files)


def as_parquet(table: pa.Table, **options: Any) -> bytes:
    written = io.BytesIO()
    parquet.write_table(table, written, **options)
    return written.getvalue()


# --- altering what a file says ---


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to everything in a JSON content."""
    yield path
    if isinstance(node, dict):
        for key, inner in node.items():
            yield from places(inner, (*path, key))
    elif isinstance(node, list):
        for position, inner in enumerate(node):
            yield from places(inner, (*path, position))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


@dataclass(frozen=True)
class Altered:
    """A content after one change."""

    how: str
    path: tuple[Any, ...]
    content: Any


def alter_a_value(content: Any, draw: random.Random) -> Altered:
    """Put another value in the place of one."""
    path = draw.choice([path for path in places(content) if path])
    old = at(content, path)
    new: list[Any] = [None, True, False, 0, 1, -1, 0.5, 777, "x", "clerk", [], {}]
    if isinstance(old, (int, float)):
        new += [old + 1, old - 1, old * 1.01, old + 1e-6, old + 1e-13, -old, float(old), str(old)]
    if isinstance(old, str):
        new += [old + " ", old.upper(), old[:-1], ""]
    if isinstance(old, list):
        new += [old[1:], [*old, *old[:1]], old[::-1]]
    if isinstance(old, dict):
        new += [{**old, "note": 1}, dict(list(old.items())[1:])]
    altered = copy.deepcopy(content)
    at(altered, path[:-1])[path[-1]] = draw.choice(new)
    return Altered("value", path, altered)


def exchange_two_values(content: Any, draw: random.Random) -> Altered:
    """Exchange what two entries have in the same place."""
    altered = copy.deepcopy(content)
    one, other = draw.sample(altered["explanations"], 2)
    path = draw.choice([path for path in places(one) if path and path != ("query",)])
    try:
        holder, holder_of_other = at(one, path[:-1]), at(other, path[:-1])
        key = path[-1]
        holder[key], holder_of_other[key] = holder_of_other[key], holder[key]
    except (KeyError, IndexError, TypeError):  # the other entry has no such place
        return alter_a_value(content, draw)
    return Altered("exchange", ("explanations", 0, *path), altered)


def take_out_entries(content: Any, draw: random.Random) -> Altered:
    """Take out entries, and correct what the file says of their number."""
    altered = copy.deepcopy(content)
    entries = altered["explanations"]
    kept = draw.sample(range(len(entries)), draw.randint(1, len(entries) - 1))
    altered["explanations"] = [
        {**entries[old], "query": new} for new, old in enumerate(sorted(kept))
    ]
    altered["asked"] = [{"query": new, "explanations": 1} for new in range(len(kept))]
    return Altered("taken out", ("explanations",), altered)


def repeat_an_entry(content: Any, draw: random.Random) -> Altered:
    """Put an entry into the file twice, and correct what the file says of their number."""
    altered = copy.deepcopy(content)
    position = draw.randrange(len(altered["explanations"]))
    altered["explanations"].insert(position, copy.deepcopy(altered["explanations"][position]))
    return Altered("repeated", ("explanations",), numbered(altered))


def reorder_entries(content: Any, draw: random.Random) -> Altered:
    """Give entries another order, and number them anew."""
    altered = copy.deepcopy(content)
    draw.shuffle(altered["explanations"])
    return Altered("reordered", ("explanations",), numbered(altered))


def numbered(content: Any) -> Any:
    for number, entry in enumerate(content["explanations"]):
        entry["query"] = number
    content["asked"] = [
        {"query": number, "explanations": 1} for number in range(len(content["explanations"]))
    ]
    return content


def alter_private_values(content: Any, draw: random.Random) -> Altered:
    """Put private values of somebody, or nearly the same ones, in the place of an entry's."""
    altered = copy.deepcopy(content)
    released = [entry for entry in altered["explanations"] if "released" in entry]
    entry = draw.choice(released)
    somebody = people().sample(1, random_state=draw.randrange(1_000)).to_dict("records")[0]
    changes: list[dict[str, Any]] = [
        {"pay": entry["released"]["pay"] * 1.01},
        {"pay": 777},
        {"pay": somebody["pay"]},
        {"job": somebody["job"]},
        {name: somebody[name] for name in PRIVATE},
        dict(draw.choice(released)["released"]),
    ]
    entry["released"].update(draw.choice(changes))
    return Altered("private values", ("explanations", 0, "released", "pay"), altered)


def add_a_key(content: Any, draw: random.Random) -> Altered:
    """Add a key somewhere, named like one of the format or not."""
    path = draw.choice([path for path in places(content) if isinstance(at(content, path), dict)])
    altered = copy.deepcopy(content)
    key = draw.choice(["note", "unchanged", "name", "labels", "columns", "age", "pay", "k_desired"])
    at(altered, path)[key] = draw.choice([1, "clerk", ["pay"], [], None])
    return Altered("key", (*path, key), altered)


def repeat_an_entry_with_other_digits(content: Any, draw: random.Random) -> Altered:
    """Put an entry into the file again, with a figure that differs in its last digits."""
    altered = copy.deepcopy(content)
    position = draw.randrange(len(altered["explanations"]))
    again = copy.deepcopy(altered["explanations"][position])
    if "certificate" in again:
        again["certificate"]["ncp"] += draw.random() * 1e-10
    altered["explanations"].insert(position + 1, again)
    return Altered("repeated", ("explanations",), numbered(altered))


def take_out_a_key(content: Any, draw: random.Random) -> Altered:
    """Take out a key, and what it stands for."""
    path = draw.choice([path for path in places(content) if path and isinstance(path[-1], str)])
    altered = copy.deepcopy(content)
    del at(altered, path[:-1])[path[-1]]
    return Altered("no key", path, altered)


def repeat_an_entry_in_another_spelling(content: Any, draw: random.Random) -> Altered:
    """Put an entry into the file again, with numbers that are written otherwise."""
    altered = copy.deepcopy(content)
    position = draw.randrange(len(altered["explanations"]))
    again = copy.deepcopy(altered["explanations"][position])
    numbers = [
        path
        for path in places({name: again[name] for name in ("region", "released") if name in again})
        if path and type(at(again, path)) is int
    ]
    if numbers:
        path = draw.choice(numbers)
        at(again, path[:-1])[path[-1]] = float(at(again, path))
    altered["explanations"].insert(position + draw.randint(0, 1), again)
    return Altered("repeated", ("explanations",), numbered(altered))


CONTENT = (
    alter_a_value,
    alter_a_value,
    exchange_two_values,
    take_out_entries,
    repeat_an_entry,
    repeat_an_entry_in_another_spelling,
    repeat_an_entry_with_other_digits,
    take_out_a_key,
    reorder_entries,
    alter_private_values,
    add_a_key,
)


# --- altering how a file says it ---


def respell_a_number(text: str, draw: random.Random) -> str:
    numbers = [match for match in _numbers(text) if "." in match[1]]
    start, number = draw.choice(numbers)
    other = draw.choice(
        [
            f"{number}0",
            f"{number}{draw.getrandbits(80)}",
            f"{number}e0",
            f"{number}E+0",
            f"-{number}",
        ]
    )
    return text[:start] + other + text[start + len(number) :]


def _numbers(text: str) -> list[tuple[int, str]]:
    found, start = [], None
    for position, letter in enumerate(text):
        if letter in "0123456789.-+eE" and (start is not None or letter in "0123456789"):
            start = position if start is None else start
        elif start is not None:
            found.append((start, text[start:position]))
            start = None
    return found


def respell(text: str, draw: random.Random) -> bytes:
    """Write the same JSON, or nearly the same, in another way."""
    content = json.loads(text)
    ways: list[Callable[[], bytes]] = [
        lambda: respell_a_number(text, draw).encode(),
        lambda: respell_a_number(text, draw).encode(),
        lambda: json.dumps(content, indent=draw.randint(0, 7)).encode(),
        lambda: json.dumps(content, sort_keys=True).encode(),
        lambda: json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode(),
        lambda: text.replace("\n", "\r\n").encode(),
        lambda: text.encode("utf-8-sig"),
        lambda: text.encode("utf-16"),
        lambda: text.encode("utf-32-le"),
        lambda: text.encode() + draw.choice([b"x", b"\0", b"{}", b"\n", b" ", b"// x"]),
        lambda: draw.choice([b"x", b"\0", b"\n", b"/**/"]) + text.encode(),
        lambda: text.replace("{", '{"kind": "answers", ', 1).encode(),
        lambda: text.replace("{", '{"note": 1, "note": 1, ', 1).encode(),
        lambda: text.replace("true", "True", 1).encode(),
        text[: draw.randrange(len(text))].encode,
        lambda: text.replace('"region"', '"regi\\u006fn"', 1).encode(),
    ]
    return draw.choice(ways)()


def alter_a_byte(content: bytes, draw: random.Random) -> bytes:
    position = draw.randrange(len(content))
    altered = bytearray(content)
    altered[position] ^= 1 << draw.randrange(8)
    return bytes(altered)


def alter_csv(content: bytes, draw: random.Random) -> bytes:
    """Write a table in another way, or with something more in it."""
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    row = draw.randrange(1, len(rows))
    column = draw.randrange(len(rows[0]))
    order = draw.sample(range(len(rows[0])), len(rows[0]))

    def written(records: list[list[str]], **options: Any) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, **{"lineterminator": "\n", **options}).writerows(records)
        return text.getvalue().encode()

    def with_row(changed: list[str]) -> bytes:
        return written([*rows[:row], changed, *rows[row + 1 :]])

    cell = rows[row][column]
    somebody = [str(value) for value in people().iloc[draw.randrange(80)]]
    ways: list[Callable[[], bytes]] = [
        lambda: with_row(["x", *rows[row]]),
        lambda: with_row([*rows[row], *somebody]),
        lambda: with_row(rows[row][:-1]),
        lambda: with_row([*rows[row][:column], draw.choice(somebody), *rows[row][column + 1 :]]),
        lambda: with_row([*rows[row][:column], f"{cell} ", *rows[row][column + 1 :]]),
        lambda: with_row([*rows[row][:column], f"{cell}0", *rows[row][column + 1 :]]),
        lambda: written([rows[0], *[[str(i), *each] for i, each in enumerate(rows[1:])]]),
        lambda: written([["", *rows[0]], *[[str(i), *each] for i, each in enumerate(rows[1:])]]),
        lambda: written([[*rows[0], "note"], *[[*each, somebody[0]] for each in rows[1:]]]),
        lambda: written([*rows, somebody]),
        lambda: written([*rows, rows[row]]),
        lambda: written([*rows[:row], *rows[row + 1 :]]),
        lambda: written([rows[0], *draw.sample(rows[1:], len(rows) - 1)]),
        lambda: written([[each[i] for i in order] for each in rows]),
        lambda: written(rows, quoting=csv.QUOTE_ALL),
        lambda: written(rows, lineterminator="\r\n"),
        lambda: written(rows, delimiter=";"),
        lambda: content.decode().encode("utf-8-sig"),
        lambda: content.decode().encode("utf-16"),
        lambda: b"# a note\n" + content,
        lambda: content + draw.choice([b"\n", b"\n\n", b"x\n", b"\0", b'"', b" "]),
        lambda: content.replace(b'"{', b'x"{', 1),
        lambda: content.replace(b'}"', b'}"x', 1),
        lambda: alter_a_byte(content, draw),
    ]
    return draw.choice(ways)()


def alter_parquet(content: bytes, draw: random.Random) -> bytes:
    """Write a table in another way, or with something more in it."""
    table = parquet.read_table(io.BytesIO(content))
    frame = table.to_pandas()
    row = draw.randrange(len(frame))
    column = draw.choice(table.column_names)
    order = draw.sample(table.column_names, len(table.column_names))
    somebody = people().iloc[draw.randrange(80)].astype(str).tolist()

    def of_frame(changed: pd.DataFrame, **options: Any) -> bytes:
        return as_parquet(pa.Table.from_pandas(changed, **options))

    def with_cell() -> bytes:
        changed = frame.astype({column: str})
        changed.loc[row, column] = draw.choice([*somebody, str(frame.loc[row, column]) + " "])
        return of_frame(changed)

    def with_hidden_value() -> bytes:
        values = [*frame["outcome"].unique(), *somebody]
        codes = [values.index(value) for value in frame["outcome"]]
        hidden = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values))
        place = table.column_names.index("outcome")
        plain = table.set_column(place, "outcome", hidden).replace_schema_metadata(None)
        return as_parquet(plain, store_schema=False)

    def with_attributes() -> bytes:
        changed = frame.copy()
        changed.attrs = {"rows": somebody}
        return of_frame(changed)

    field = table.schema.field(column).with_metadata({"note": somebody[0]})
    noted = table.cast(table.schema.set(table.column_names.index(column), field))
    index = frame.set_index(pd.Index([f"{somebody[0]}-{i}" for i in range(len(frame))]))
    place = draw.choice([4, len(content) - 8, draw.randrange(len(content))])
    ways: list[Callable[[], bytes]] = [
        with_cell,
        with_cell,
        with_hidden_value,
        with_attributes,
        lambda: of_frame(index),
        lambda: of_frame(frame.iloc[::-1]),
        lambda: of_frame(frame.assign(note=somebody[0])),
        lambda: of_frame(frame.drop(index=row), preserve_index=False),
        lambda: of_frame(pd.concat([frame, frame.iloc[[row]]]), preserve_index=False),
        lambda: of_frame(frame.sample(frac=1, random_state=row), preserve_index=False),
        lambda: of_frame(frame[order]),
        lambda: of_frame(frame.rename_axis("note")),
        lambda: of_frame(frame.rename_axis(columns="note")),
        lambda: as_parquet(table.replace_schema_metadata({**table.schema.metadata, "note": "x"})),
        lambda: as_parquet(noted),
        lambda: as_parquet(table, row_group_size=draw.randint(1, 5)),
        lambda: as_parquet(table, compression=draw.choice(["zstd", "gzip", "none"])),
        lambda: as_parquet(table, use_dictionary=False),
        lambda: as_parquet(table, write_statistics=False),
        lambda: content[:place] + draw.randbytes(draw.randint(1, 9)) + content[place:],
        lambda: content[: draw.randrange(len(content))],
        lambda: content + somebody[0].encode(),
    ]
    return draw.choice(ways)()


# --- whether a file still says the same ---


def is_same(one: Any, other: Any) -> bool:
    """Say whether two JSON contents say the same; numbers are compared by value."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def says_the_same(name: str, content: bytes, honest: bytes) -> bool:
    """Read both files with other readers than the product's, and compare them."""
    if content == honest:
        return True
    if name.endswith(".json"):
        try:
            text = content.decode()
            return _has_no_key_twice(text) and is_same(json.loads(text), json.loads(honest))
        except ValueError:
            return False
    if name.endswith(".csv"):
        tables = [
            list(csv.DictReader(io.StringIO(each.decode("utf-8-sig"), newline="")))
            for each in (content, honest)
        ]
        return tables[0] == tables[1]
    one, other = (parquet.read_table(io.BytesIO(each)) for each in (content, honest))
    if sorted(one.column_names) != sorted(other.column_names):
        return False
    return bool(one.select(other.column_names).to_pylist() == other.to_pylist())


def _has_no_key_twice(text: str) -> bool:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    json.loads(text, object_pairs_hook=once)
    return True


# --- what may pass although it says something else ---


def row_of_the_documentation(altered: Altered) -> str | None:
    """Name the row of the table in verify-a-release.md that says so; None if there is none."""
    within = altered.path[2:3]
    if altered.how in ("taken out", "repeated", "reordered"):
        return "entries were removed, repeated or reordered, and their number corrected"
    if within == ("released",) or altered.how == "private values":
        return "a private value was replaced by another that the policy allows"
    if within == ("certificate",) and altered.how == "value":
        return (
            "a date, flag or category was spelled in another way, or a digit after the ninth was"
            " changed"
        )
    if within == ("unchanged",):
        return "which private values are marked as the query's own"
    if altered.path[3:4] == ("not_stopped",):
        return "whether query steering is listed as not stopped"
    if within in (("reason",), ("columns",)):
        return "the reason why an explanation was withheld"
    return None


def altered_files(case: Case, name: str, number: int) -> Iterator[tuple[bytes, Altered]]:
    """Yield files that differ from an honest one, each in one thing."""
    honest = case.files[name]
    draw = random.Random(name)
    for _ in range(number):
        if name.endswith(".csv"):
            yield alter_csv(honest, draw), Altered("table", (), None)
        elif name.endswith(".parquet"):
            yield alter_parquet(honest, draw), Altered("table", (), None)
        elif draw.random() < 0.3:
            yield respell(honest.decode(), draw), Altered("spelling", (), None)
        else:
            altered = draw.choice(CONTENT)(json.loads(honest), draw)
            yield json.dumps(altered.content).encode(), altered


IN_EACH_RUN = pytest.param(60, id="some")
ALL = pytest.param(290, id="all", marks=pytest.mark.slow)
CATALOGUES = ["catalogue.json", "catalogue.csv", "catalogue.parquet"]
ANSWERS = ["answers.json", "counterfactuals.json"]


@pytest.mark.parametrize("name", [*CATALOGUES, *ANSWERS])
def test_honest_files_pass(case: Case, name: str) -> None:
    for rerun in (False, True):
        assert case.verdict(name, case.files[name], rerun=rerun) == "pass"


@pytest.mark.parametrize("number", [IN_EACH_RUN, ALL])
@pytest.mark.parametrize("name", CATALOGUES)
def test_a_catalogue_passes_a_rerun_only_if_it_says_the_same(
    case: Case, name: str, number: int
) -> None:
    passed = 0
    for content, altered in altered_files(case, name, number):
        if case.verdict(name, content, rerun=True) == "pass":
            passed += 1
            assert says_the_same(name, content, case.files[name]), altered
    assert 0 < passed < number / 2


@pytest.mark.parametrize("number", [IN_EACH_RUN, ALL])
@pytest.mark.parametrize("name", ["catalogue.json", *ANSWERS])
def test_what_passes_otherwise_is_documented(case: Case, name: str, number: int) -> None:
    told = set()
    rerun = name in ANSWERS
    for content, altered in altered_files(case, name, number):
        if case.verdict(name, content, rerun=rerun) != "pass":
            continue
        if not says_the_same(name, content, case.files[name]):
            row = row_of_the_documentation(altered)
            assert row is not None, altered
            told.add(row)
    page = (Path(__file__).parents[2] / "docs/how-to/verify-a-release.md").read_text("utf-8")
    assert told <= {line.split("|")[1].strip() for line in page.splitlines() if "|" in line}
    assert told


@pytest.mark.parametrize("number", [pytest.param(100, id="some"), ALL])
def test_a_parquet_file_with_another_byte_is_refused_or_says_the_same(
    case: Case, number: int, tmp_path: Path
) -> None:
    """In a process of its own: at some damaged files pyarrow stops the whole process."""
    honest = case.files["catalogue.parquet"]
    draw = random.Random(3)
    (tmp_path / "honest").write_bytes(honest)
    for place in range(number):
        (tmp_path / f"{place}.parquet").write_bytes(alter_a_byte(honest, draw))
    said: list[str] = []
    while len(said) < number:
        command = [sys.executable, __file__, str(tmp_path), str(len(said)), str(number)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        said += child.stdout.split()
        if len(said) < number:
            assert child.returncode < 0, child.stderr  # stopped by a signal
            said.append("stopped")
    assert set(said) <= {"refused", "same", "different", "stopped"}
    for place, what in enumerate(said):
        if what == "different":
            content = (tmp_path / f"{place}.parquet").read_bytes()
            assert case.verdict("catalogue.parquet", content, rerun=True) != "pass"
    assert said.count("refused") > number / 3


def read_in_own_process(folder: Path, first: int, number: int) -> None:
    """Print what becomes of some damaged files."""
    honest = (folder / "honest").read_bytes()
    for place in range(first, number):
        content = (folder / f"{place}.parquet").read_bytes()
        try:
            read_released(content, Path("altered.parquet"))
            is_the_same = says_the_same("altered.parquet", content, honest)
            print("same" if is_the_same else "different", flush=True)
        except CFKError:
            print("refused", flush=True)


@pytest.mark.parametrize("number", [pytest.param(100, id="some"), ALL])
def test_a_sealed_file_that_was_altered_is_refused(case: Case, number: int, tmp_path: Path) -> None:
    fitted = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        case.judge.population, case.judge.model, desired=True
    )
    fitted.seal(tmp_path / "sealed.cfk")
    honest = (tmp_path / "sealed.cfk").read_bytes()
    draw = random.Random(4)
    for _ in range(number):
        place = draw.randrange(len(honest))
        altered = draw.choice(
            [
                alter_a_byte(honest, draw),
                honest[:place] + draw.randbytes(draw.randint(1, 9)) + honest[place:],
                honest[:place] + honest[place + draw.randint(1, 9) :],
                honest + honest,
            ]
        )
        (tmp_path / "sealed.cfk").write_bytes(altered)
        with pytest.raises(BundleError):
            Population.open(tmp_path / "sealed.cfk", key=KEY)


if __name__ == "__main__":
    read_in_own_process(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
