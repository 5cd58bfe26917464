"""What `cfk verify` lets pass: nothing that was put into a file, and only what it says that it
cannot know.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.data.encoded_table import Counterfactual
from cfk_plugin.data.policy import STEERING
from cfk_plugin.errors import SignatureError, WrongSignatureError
from cfk_plugin.release import signing

CANARY = "secret-7f3a"
ROW = {
    "name": CANARY,
    "age": 34,
    "sex": 1,
    "zip": "2018",
    "school": "low",
    "salary": 31337,
    "job": "spy",
}
FEATURES = ["age", "sex", "zip", "school", "salary", "job"]
SCHEMA: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex", "zip", "school"],
    "identifiers": ["name"],
    "target": "outcome",
    "sensitive": ["job"],
    "nominal": ["sex"],
    "ordinal": {"school": ["low", "mid", "high"]},
    "hierarchies": {"zip": {"2000": ["2*"], "2018": ["2*"], "9000": ["9*"], "9050": ["9*"]}},
    "bins": {"salary": [20, 40, 60, 90, 120]},
}
PUBLIC: dict[str, Any] = {
    "quasi_identifiers": ["age"],
    "bounds": {"age": [18, 60], "salary": [20, 120]},
    "categories": {"job": ["a", "b", "c"]},
    "nullable": [],
}
POLICIES: dict[str, dict[str, Any]] = {
    "lookup": {"k": 5, "guarantee": "lookup"},
    "reciprocal": {"k": 5},
    "catalogue": {"k": 5, "guarantee": "catalogue"},
    "coarse": {
        "k": 5,
        "private_values": "bins",
        "rare_values": "withhold",
        "alpha": 0.6,
        "l": 2,
        "t": 0.9,
    }
    | {"min_pureness": 0.5},  # so that some are less pure than 1
}
OTHER_NUMBER = {"a value of a row in its place", "one more", "a bit more", "less", "negative"}


def is_own_claim(how: str, path: tuple[Any, ...]) -> bool:
    """Say whether who has file and table alone cannot tell what is there now from what was; a
    signature does.
    """
    within, at = path[-2:] if len(path) > 1 else ("", *path)
    # another number in place of a private one, or of what noise has drawn
    if within in ("released", "prototype"):
        return how in OTHER_NUMBER
    # of a category 1 and "1", 0 and 0.0 are the same
    if within == "values" and how in ("as text", "less"):
        return True
    if path == ("policy", "people"):  # a number of people that was declared
        return how in OTHER_NUMBER
    # What a search says of itself, and words: verification lists both as not checked.
    return at in ("optimal", "gap", "sentence")


def is_without_steering(how: str, path: tuple[Any, ...], content: dict[str, Any]) -> bool:
    """Say whether "query steering" alone is taken out of what a catalogue's answer lists."""
    if how != "taken out" or path[-2:-1] != ("not_stopped",):
        return False
    certificate = content["explanations"][path[1]]["certificate"]
    is_steering = certificate["not_stopped"][path[-1]] == STEERING
    return is_steering and certificate["guarantee"] == "catalogue"


def people() -> pd.DataFrame:
    random = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(n)],
            "age": random.integers(18, 60, n),
            "sex": random.integers(0, 2, n),
            "zip": random.choice(["2000", "2018", "9000", "9050"], n),
            "school": random.choice(["low", "mid", "high"], n),
            "salary": random.integers(20, 120, n),
            "job": random.choice(["a", "b", "c"], n),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 100, "yes", "no")
    return frame


def cfk(command: str, code: int | None = None, **environment: str) -> Result:
    result = CliRunner().invoke(app, command.split(), env=environment)
    assert code is None or result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a release of each kind, as the commands write them."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            "cfk_plugin.protection.partition.microaggregation._WORK", {"balanced": (300, 0, 1e6)}
        )  # as in the tests, which build the same groups again
        write_releases()
    return folder


def write_releases() -> None:
    train = people()
    train.to_csv("train.csv", index=False)
    rows = pd.read_csv("train.csv")
    numbers = make_column_transformer(("passthrough", ["age", "sex", "salary"]))
    model = make_pipeline(numbers, DecisionTreeClassifier(max_depth=4, random_state=0))
    joblib.dump(model.fit(rows[FEATURES], rows["outcome"]), "model.joblib")
    label = model.predict(rows[FEATURES])
    pd.concat([rows[label == "yes"].head(2), rows[label == "no"].head(1)])[FEATURES].to_csv(
        "cf.csv", index=False
    )
    Path("schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    rows[["age", "salary", "job"]].to_csv("people.csv", index=False)
    Path("public.json").write_text(json.dumps(PUBLIC), encoding="utf-8")
    for name, policy in POLICIES.items():
        Path(f"{name}.policy").write_text(json.dumps(policy), encoding="utf-8")
        cfk(
            f"protect train.csv cf.csv -s schema.json -m model.joblib -d yes --policy {name}.policy -o {name}.json",
            3,
        )
    Path("prototypes.json").write_text(prototypes(rows), encoding="utf-8")


def prototypes(rows: pd.DataFrame) -> str:
    pytest.importorskip("opendp")
    from cfk_plugin import DPPrototypes

    table = rows[["age", "salary", "job"]]
    population = Population.from_frame(table, Schema.from_frame(table, **PUBLIC))
    fitted = DPPrototypes(epsilon=1.0, rows=500).fit(
        population, model=lambda x: x["salary"] > 60, desired=True
    )
    text: str = fitted.explain(table[table["salary"] <= 60].head(2)).to_json()
    return text


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return that folder to work in; what a test adds to it is taken away."""
    there = set(made.iterdir())
    monkeypatch.chdir(made)
    yield made
    for path in set(made.iterdir()) - there:
        path.unlink()


def content_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{name}.json").read_text(encoding="utf-8"))
    return found


def verify(content: Any, options: str = "") -> Result:
    """Write a file and verify it as it stands; nothing of what was put into it may be told."""
    text = content if isinstance(content, str) else json.dumps(content)
    Path("changed.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    table = "people.csv -s public.json" if '"prototype"' in text else "train.csv -s schema.json"
    result = cfk(f"verify changed.json {table} {options}")
    assert CANARY not in result.output
    assert "31337" not in result.output
    return result


def mutations(content: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield what somebody could do to a file at each place of it: how, where, and the file that
    results.
    """
    for path in places(content):
        if path[:2] == ("explanations", 1):  # released as the first one is
            continue
        for how, change in CHANGES.items():
            whole = {"": copy.deepcopy(content)}
            holder: Any = whole
            for step in ("", *path)[:-1]:
                holder = holder[step]
            change(holder, ("", *path)[-1])
            if "" in whole and json.dumps(whole[""]) != json.dumps(content):
                yield how, path, whole[""]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for step, value in inner:
        yield from places(value, (*path, step))


def put(value: Any) -> Callable[[Any, Any], Any]:
    def change(holder: Any, step: Any) -> None:
        holder[step] = value

    return change


def within(kind: type | tuple[type, ...], act: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Change what is there, where it is of a kind; booleans are no numbers."""

    def change(holder: Any, step: Any) -> None:
        value = holder[step]
        if isinstance(value, kind) and (not isinstance(value, bool) or kind is bool):
            holder[step] = act(value)

    return change


def removed(holder: Any, step: Any) -> None:
    holder.pop(step)


def repeated(holder: Any, step: Any) -> None:
    if isinstance(holder, list):
        holder.insert(step, copy.deepcopy(holder[step]))


def swapped(value: list[Any]) -> list[Any]:
    return value[1:] + value[:1] if len(value) > 1 else value


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "a row in its place": put(ROW),
    "a value of a row in its place": put(31337),
    "a name in its place": put(CANARY),
    "none in its place": put(None),
    "a note added": within(dict, lambda value: {**value, "note": CANARY}),
    "a row added": within(dict, lambda value: {**value, "values": ROW}),
    "a key that is a value": within(dict, lambda value: {**value, CANARY: 1}),
    "a row appended": within(list, lambda value: [*value, ROW]),
    "a name appended": within(list, lambda value: [*value, CANARY]),
    "taken out": removed,
    "doubled": repeated,
    "other order": within(list, swapped),
    "one more": within((int, float), lambda value: value + 1),
    "a bit more": within((int, float), lambda value: value + 0.001),
    "less": within((int, float), lambda value: value / 2),
    "negative": within((int, float), lambda value: -value - 1),
    "as text": within((int, float), str),
    "a letter more": within(str, lambda value: value + "x"),
    "empty": within((str, list, dict), lambda value: type(value)()),
    "the contrary": within(bool, lambda value: not value),
}
KINDS = [*POLICIES, "prototypes"]
PASS = {"prototypes": 3}  # a person has to look: no people can be counted for them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [29, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("folder")
def test_what_is_written_passes_and_whatever_is_put_into_a_file_is_noticed(
    kind: str, step: int
) -> None:
    as_it_is, tried = verify(content_of(kind)), 0
    assert as_it_is.exit_code == PASS.get(kind, 0), as_it_is.output
    assert "not checked: " in as_it_is.output
    for how, path, changed in list(mutations(content_of(kind)))[::step]:
        if is_without_steering(how, path, content_of(kind)):  # the file does not show the start
            continue
        tried += 1
        result = verify(changed)
        passed = result.exit_code == PASS.get(kind, 0) and (
            kind not in PASS or result.output == as_it_is.output
        )
        assert not passed or is_own_claim(how, path), (how, path)
        assert "unexpected" not in result.output, (how, path, result.output)
    assert tried > (12 if step > 3 else 100)


def entry(content: dict[str, Any], i: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["explanations"][i]
    return found


PURENESS = ("pureness", "pureness_low", "pureness_high")
RAW: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a row under values of a withheld one": (
        lambda c: entry(c, 2).update(values=ROW),
        "explanation 2",
    ),
    "a note": (lambda c: entry(c).update(note=f"this is {CANARY}"), "explanation 0"),
    "a note at the top": (lambda c: c.update(note=CANARY), "top"),
    "labels": (lambda c: entry(c).update(labels={"zip": CANARY}), "explanation 0"),
    "an inner count": (
        lambda c: entry(c)["certificate"].update(k_private=1),
        "explanation 0, certificate",
    ),
    "an undeclared column": (
        lambda c: entry(c)["released"].update(iban=CANARY),
        "not in the schema",
    ),
    "an identifier": (lambda c: entry(c)["released"].update(name=CANARY), "releases name exactly"),
    "an entry taken out": (lambda c: c["explanations"].pop(1), "are 2, and 3 were asked for"),
    "a withheld entry taken out": (
        lambda c: c["explanations"].pop(2),
        "are 2, and 3 were asked for",
    ),
    "an entry taken out, and counted out": (
        lambda c: (c["explanations"].pop(1), c["asked"].pop(1)),
        "a part of what",
    ),
    "a name in a set": (
        lambda c: entry(c)["region"]["sex"]["values"].append(CANARY),
        "region of sex",
    ),
    "a name as a level": (
        lambda c: entry(c)["region"]["school"]["levels"].append(CANARY),
        "region of school",
    ),
    "a name as an end": (lambda c: entry(c)["region"]["age"].update(low=CANARY), "region of age"),
    "a name as a category": (lambda c: entry(c)["released"].update(job=CANARY), "releases job"),
    "a name for a number": (
        lambda c: entry(c)["released"].update(salary=CANARY),
        "releases salary",
    ),
    "a name as the method": (
        lambda c: [entry(c, i)["certificate"].update(method=CANARY) for i in (0, 1)],
        "method",
    ),
    "a name as a column at fault": (
        lambda c: entry(c, 2).update(reason="missing_value", columns=[CANARY]),
        "names a column that is no feature",
    ),
    "another outcome of the policy": (lambda c: c["policy"].update(k=2), "policy_hash"),
    "a better certificate": (
        lambda c: entry(c)["certificate"].update(k=500),
        "the certificate says something else",
    ),
    "purer than it is": (
        lambda c: entry(c)["certificate"].update(dict.fromkeys(PURENESS, 0.987654321)),
        "pureness",
    ),
    "a lower floor": (lambda c: c.update(least_pureness=0.1), "least_pureness"),
    "fewer attacks left": (
        lambda c: entry(c)["certificate"]["not_stopped"].remove("intersection after a change"),
        "not_stopped",
    ),
}


@pytest.mark.parametrize("how", RAW)
@pytest.mark.usefixtures("folder")
def test_what_was_put_in_is_told_by_its_place(how: str) -> None:
    change, where = RAW[how]
    content = content_of("reciprocal")
    change(content)
    result = verify(content)
    assert result.exit_code in (1, 3)
    assert where in " ".join(result.output.replace("│", " ").split())


def twice(text: str) -> str:
    return text.replace('"query": 0', f'"query": "{CANARY}", "query": 0', 1)


TEXTS: dict[str, tuple[Callable[[str], str], str]] = {
    "a key twice": (twice, "a key twice"),
    "a number that is none": (
        lambda t: t.replace('"min_pureness": null', '"min_pureness": NaN'),
        "not finite",
    ),
    "a number too large": (
        lambda t: t.replace('"min_pureness": null', '"min_pureness": 1e999'),
        "not finite",
    ),
    "a number without end": (lambda t: t.replace('"k": 5', '"k": ' + "5" * 5000), "digits"),
    "nested without end": (lambda t: '{"a":' * 100_000, "RecursionError"),
    "half a file": (lambda t: t[: len(t) // 2], "line"),
    "another version": (
        lambda t: t.replace('"schema_version": 1', '"schema_version": 2'),
        "schema_version is not 1",
    ),
    "a name as the version": (
        lambda t: t.replace('"schema_version": 1', f'"schema_version": "{CANARY}"'),
        "not 1",
    ),
    "text after the end": (lambda t: t + CANARY, "line"),
}


@pytest.mark.parametrize("how", TEXTS)
@pytest.mark.usefixtures("folder")
def test_text_that_is_no_release_is_one_line(how: str) -> None:
    change, said = TEXTS[how]
    result = verify(change(Path("lookup.json").read_text(encoding="utf-8")))
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


MODEL = "-m model.joblib -d yes"


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.usefixtures("folder")
def test_a_release_is_what_comes_out_again(kind: str) -> None:
    result = verify(content_of(kind), f"{MODEL} --rerun --policy {kind}.policy")
    assert result.exit_code == 0, result.output
    unchecked = "that a search finds these regions again" in result.output
    assert unchecked == (kind == "lookup")
    assert "(--model)" not in result.output
    assert "(--policy)" not in result.output


@pytest.mark.usefixtures("folder")
def test_a_model_that_says_otherwise_is_noticed() -> None:
    cfk(
        "protect train.csv train.csv -s schema.json -m model.joblib -d yes --policy coarse.policy -o many.json",
        3,
    )
    content = content_of("many")
    told = [e["certificate"] for e in content["explanations"] if e["status"] == "released"]
    next(each for each in told if each["pureness"] < 1).update(dict.fromkeys(PURENESS, 1.0))
    assert verify(content).exit_code == 0  # a share as any other
    assert "pureness is not what the model says" in verify(content, MODEL).output


@pytest.mark.parametrize(("kind", "code"), [("reciprocal", 1), ("catalogue", 1), ("lookup", 0)])
@pytest.mark.usefixtures("folder")
def test_a_region_that_the_guarantee_does_not_have_is_noticed(kind: str, code: int) -> None:
    """A region that is counted, pure and certified rightly, made by hand: everybody's."""
    content = content_of(kind)
    train = pd.read_csv("train.csv")
    wide = {
        "age": {
            "kind": "interval",
            "low": int(train["age"].min()),
            "high": int(train["age"].max()),
        },
        "sex": {"kind": "set", "values": [0, 1]},
        "zip": {"kind": "set", "values": [2000, 2018, 9000, 9050]},
        "school": {
            "kind": "interval",
            "low": "low",
            "high": "high",
            "levels": ["low", "mid", "high"],
        },
    }
    first = entry(content)
    first["region"] = wide
    model, own = joblib.load("model.joblib"), first["released"]
    grid = [
        {"age": age, "sex": sex, "zip": zip_, "school": school, **own}
        for age in sorted(set(train["age"]))
        for sex in (0, 1)
        for zip_ in (2000, 2018, 9000, 9050)
        for school in ("low", "mid", "high")
    ]
    share = float((model.predict(pd.DataFrame(grid)[FEATURES]) == "yes").mean())
    first["certificate"].update(dict.fromkeys(PURENESS, share), k=240, ncp=1.0)
    assert verify(content, MODEL).exit_code == 0
    result = verify(content, f"{MODEL} --rerun")
    assert result.exit_code == code
    assert (
        "no group of the guarantee has its region"
        in " ".join(result.output.replace("│", " ").split())
    ) == bool(code)


@pytest.mark.usefixtures("folder")
def test_private_values_that_the_catalogue_does_not_have_are_noticed() -> None:
    Path("unmoved.policy").write_text(
        json.dumps(POLICIES["catalogue"] | {"move_towards_query": False}), encoding="utf-8"
    )
    protect = "protect train.csv cf.csv -s schema.json -m model.joblib -d yes --policy unmoved.policy -o unmoved.json"
    cfk(protect, 3)
    content = content_of("unmoved")
    entry(content)["released"]["salary"] += 0.5
    assert verify(content, MODEL).exit_code == 0
    result = verify(content, f"{MODEL} --rerun")
    assert result.exit_code == 1
    assert "no entry of the catalogue" in result.output


@pytest.mark.usefixtures("folder")
def test_a_policy_that_was_not_agreed_on_is_noticed() -> None:
    result = verify(content_of("coarse"), "--policy reciprocal.policy")
    assert (result.exit_code, "is not the one that was given" in result.output) == (1, True)


def test_a_release_for_the_opposite_outcome_comes_out_again(folder: Path) -> None:
    cfk(
        "protect train.csv cf.csv -s schema.json -m model.joblib --guarantee catalogue --k 5 -o opposite.json",
        0,
    )
    assert verify(content_of("opposite"), "-m model.joblib --rerun").exit_code == 0


def test_another_table_or_key_is_noticed_by_who_has_the_key(folder: Path) -> None:
    protect = "protect train.csv cf.csv -s schema.json -m model.joblib -d yes --k 5 -o keyed.json"
    cfk(protect, 3, CFK_KEY="one")
    verified = "verify keyed.json train.csv -s schema.json"
    assert "set CFK_KEY" not in cfk(verified, 0, CFK_KEY="one").output
    assert "another population" in cfk(verified, 3, CFK_KEY="two").output


@pytest.mark.parametrize("name", ["lookup", "changed"])
@pytest.mark.usefixtures("folder")
def test_output_that_nobody_reads_changes_no_exit_code_and_is_no_error(name: str) -> None:
    """As with ``cfk verify ... | head -1``, whose reader ends before the output does."""
    content = content_of("lookup")
    if name == "changed":
        content["explanations"][0]["certificate"]["k"] = 3
    Path(f"{name}-read.json").write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "cfk_plugin.cli", "verify", f"{name}-read.json", "train.csv"]
    command += ["-s", "schema.json"]
    read = subprocess.run(command, capture_output=True, check=False)
    assert read.stdout
    nobody_reads, end = os.pipe()
    os.close(nobody_reads)
    unread = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, check=False)
    os.close(end)
    assert unread.returncode == read.returncode == (0 if name == "lookup" else 1)
    assert unread.stderr == read.stderr == b""


def few(queries: list[int], folder: Path) -> Any:
    train = people()[["age", "salary", "job"]]
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=5))
    anonymizer.fit(population, model=lambda rows: rows["salary"] > 0, desired=True)
    rows = train.head(len(queries)).to_dict("records")
    return anonymizer.transform(
        [Counterfactual(query, row) for query, row in zip(queries, rows, strict=True)]
    )


@pytest.mark.parametrize(
    ("queries", "code", "asked"),
    [
        ([0, 0, 1, 2], 0, [(0, 2), (1, 1), (2, 1)]),
        # written by query, whatever order they came in
        ([2, 0, 1, 0], 0, [(0, 2), (1, 1), (2, 1)]),
        ([1, 3], 3, [(1, 1), (3, 1)]),
        ([10**9], 3, [(10**9, 1)]),
    ],
)
def test_a_file_says_how_many_were_asked_for(
    queries: list[int], code: int, asked: Any, folder: Path
) -> None:
    content = json.loads(few(queries, folder).to_json())
    assert content["asked"] == [{"query": query, "explanations": n} for query, n in asked]
    assert [e["query"] for e in content["explanations"]] == sorted(queries)
    Path("ages.json").write_text('{"quasi_identifiers": ["age"]}', encoding="utf-8")
    people()[["age", "salary", "job"]].to_csv("ages.csv", index=False)
    Path("few.json").write_text(json.dumps(content), encoding="utf-8")
    cfk("verify few.json ages.csv -s ages.json", code)


@pytest.fixture
def signed(folder: Path) -> Path:
    """Return a folder with a signed release, and keys."""
    assert "keep it to yourself" in cfk("sign --new-key release.key", 0).output
    cfk("sign --new-key other.key", 0)
    (folder / "signed.json").write_bytes((folder / "reciprocal.json").read_bytes())
    cfk("sign signed.json --key release.key", 0)
    return folder


SIGNED = "verify signed.json train.csv -s schema.json --key release.key.pub"


@pytest.mark.usefixtures("signed")
def test_a_signed_file_passes_with_the_table_and_without() -> None:
    assert "(--key)" not in cfk(SIGNED, 0).output
    alone = cfk("verify signed.json --key release.key.pub", 0).output
    assert "not checked: people, information loss and values" in alone
    assert "(--key)" in cfk("verify signed.json train.csv -s schema.json", 0).output


def test_any_byte_of_a_signed_file_counts(signed: Path) -> None:
    content, random = (signed / "signed.json").read_bytes(), np.random.default_rng(0)
    at = [0, len(content) - 1, *random.integers(0, len(content), 100).tolist()]
    changed = [
        content[:i] + bytes([content[i] ^ (1 << int(random.integers(8)))]) + content[i + 1 :]
        for i in at
    ]
    changed += [content[:i] + content[i + 1 :] for i in at[:20]]
    others = [
        b"",
        content + b"\n",
        content.replace(b"\n", b"\r\n"),
        content[:-1],
        b"\xef\xbb\xbf" + content,
    ]
    for other in changed + others:
        (signed / "signed.json").write_bytes(other)
        with pytest.raises(WrongSignatureError):
            signing.verify("signed.json", "release.key.pub")
    for other in changed[:5] + others:
        (signed / "signed.json").write_bytes(other)
        assert "not what was signed" in cfk(SIGNED, 1).output
    (signed / "signed.json").write_bytes(content)
    cfk(SIGNED, 0)


def test_any_byte_of_a_signature_counts(signed: Path) -> None:
    signature = signed / "signed.json.sig"
    made = signature.read_bytes()
    others = [made[:i] + bytes([made[i] ^ 1]) + made[i + 1 :] for i in range(len(made))]
    others += [
        b"",
        made[:-1],
        made[: len(made) // 2],
        made + b"\n",
        made * 2,
        made.replace(b"\n", b"\r\n"),
        b"\0" * 64,
    ]
    for other in others:
        signature.write_bytes(other)
        with pytest.raises(WrongSignatureError):
            signing.verify("signed.json", "release.key.pub")
    assert "is no signature" in cfk(SIGNED, 1).output
    signature.unlink()
    assert "no such file" in cfk(SIGNED, 1).output


def test_a_signature_is_of_one_file_and_one_key(signed: Path) -> None:
    assert (
        "signed with another key"
        in cfk(SIGNED.replace("release.key.pub", "other.key.pub"), 1).output
    )
    (signed / "lookup.json.sig").write_bytes((signed / "signed.json.sig").read_bytes())
    assert "not what was signed" in cfk(SIGNED.replace("signed.json", "lookup.json"), 1).output
    (signed / "elsewhere.sig").write_bytes((signed / "signed.json.sig").read_bytes())
    cfk(f"{SIGNED} --signature elsewhere.sig", 0)


def test_a_bare_signature_of_the_same_bytes_is_none(signed: Path) -> None:
    """What a key signed for another purpose must not pass here."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key((signed / "release.key").read_bytes(), None)
    made = base64.b64encode(key.sign((signed / "signed.json").read_bytes()))  # type: ignore[union-attr,call-arg]
    name = (signed / "signed.json.sig").read_bytes().split()[1]
    (signed / "signed.json.sig").write_bytes(b"cfk-signature-1 %s %s\n" % (name, made))
    assert "not what was signed" in cfk(SIGNED, 1).output


def test_keys_are_private_and_never_overwritten(signed: Path) -> None:
    before = (signed / "release.key").read_bytes()
    assert stat.S_IMODE((signed / "release.key").stat().st_mode) == 0o600
    assert "never overwritten" in cfk("sign --new-key release.key", 2).output
    (signed / "release.key.pub").rename(signed / "moved.pub")
    (signed / "half.key.pub").write_bytes(b"")
    assert "never overwritten" in cfk("sign --new-key half.key", 2).output
    assert not (signed / "half.key").exists()
    assert (signed / "release.key").read_bytes() == before
    (signed / "release.key").chmod(0o644)
    assert "others may read this private key" in cfk("sign signed.json --key release.key", 2).output


def test_a_passphrase_opens_a_key(signed: Path) -> None:
    cfk("sign --new-key locked.key", 0, CFK_SIGN_PASSPHRASE="a long one")
    assert "set CFK_SIGN_PASSPHRASE" in cfk("sign signed.json --key locked.key", 2).output
    said = cfk("sign signed.json --key locked.key", 2, CFK_SIGN_PASSPHRASE="another one").output
    assert "another one" not in said
    cfk("sign signed.json --key locked.key", 0, CFK_SIGN_PASSPHRASE="a long one")
    cfk(SIGNED.replace("release.key.pub", "locked.key.pub"), 0)


WRONG_KEYS = {
    "a private key to verify": ("verify signed.json --key release.key", "is a private key"),
    "a public key to sign": ("sign signed.json --key release.key.pub", "private key"),
    "no key at all": ("verify signed.json --key signed.json", "no public key"),
    "no such key": ("verify signed.json --key nope.pub", "nope.pub: cannot be read"),
    "no such file": ("verify nope.json --key release.key.pub", "nope.json: cannot be read"),
    "nothing to sign": ("sign nope.json --key release.key", "nope.json: cannot be read"),
    "no folder": ("sign --new-key nowhere/release.key", "cannot be written"),
    "both at once": ("sign signed.json --new-key third.key", "signs nothing"),
    "a signature alone": (
        "verify signed.json train.csv -s schema.json --signature x",
        "--signature needs --key",
    ),
    "a count without a table": (
        "verify signed.json --key release.key.pub --k 5",
        "need the training rows",
    ),
}


@pytest.mark.parametrize("how", WRONG_KEYS)
@pytest.mark.usefixtures("signed")
def test_a_wrong_key_is_one_line_and_exit_2(how: str) -> None:
    command, said = WRONG_KEYS[how]
    result = cfk(command, 2)
    assert said in result.output
    assert result.output.count("\n") == 1


def test_signing_in_python(tmp_path: Path) -> None:
    file = tmp_path / "released.json"
    file.write_bytes(b"{}")
    public = signing.new_key(tmp_path / "release.key", passphrase="one")
    assert (
        signing.sign(file, tmp_path / "release.key", passphrase="one").name == "released.json.sig"
    )
    assert signing.verify(file, public) == b"{}"
    with pytest.raises(SignatureError, match="encrypted"):
        signing.sign(file, tmp_path / "release.key")
    (tmp_path / "rsa.pub").write_bytes(b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n")
    with pytest.raises(SignatureError, match="no public key"):
        signing.verify(file, tmp_path / "rsa.pub")


MIXED: list[tuple[str, dict[str, Any]]] = [
    ("1", {"k": 5, "guarantee": "lookup", "objective": "ncp"}),
    ("opposite", {"k": 30}),
    ("opposite", {"k": 5, "private_values": "bins", "rare_values": "withhold", "alpha": 0.5}),
    ("1", {"k": 5, "guarantee": "catalogue"}),
]


@pytest.mark.parametrize(("desired", "policy"), MIXED)
def test_what_comes_of_dates_gaps_and_numbers_that_no_row_has_passes(
    desired: str, policy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random, n = np.random.default_rng(1), 120
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 300, n), "D")
    train = people().head(n).drop(columns=["name", "outcome"])
    train["weight"] = np.where(
        random.random(n) < 0.1, np.nan, np.round(50 + 30 * random.random(n), 2)
    )
    train["since"], train["until"] = (
        days.strftime("%Y-%m-%d"),
        (days + pd.Timedelta(days=9)).strftime("%Y-%m-%d"),
    )
    train["note"] = random.choice(["x", "y", None], n)
    numbers = train[["age", "salary"]].sum(axis=1)
    model = make_pipeline(
        make_column_transformer(("passthrough", ["age", "salary"])),
        DecisionTreeClassifier(max_depth=4, random_state=0),
    ).fit(train, np.digitize(numbers, [90, 120]))
    joblib.dump(model, "model.joblib")
    train.to_csv("train.csv", index=False)
    native = train.sample(5, random_state=0)
    synthetic = native.assign(
        age=native["age"] + 0.5, weight=native["weight"] + 0.011, salary=native["salary"] + 0.25
    )
    pd.concat([native, synthetic]).to_csv("cf.csv", index=False)
    quasi = {
        "quasi_identifiers": ["age", "weight", "since", "school", "zip"],
        "weights": {"age": 2.0},
    }
    kept = {
        name: SCHEMA[name] for name in ("ordinal", "hierarchies", "bins", "sensitive", "nominal")
    }
    Path("schema.json").write_text(json.dumps(quasi | kept), encoding="utf-8")
    Path("policy.json").write_text(json.dumps(policy), encoding="utf-8")
    given = f"-s schema.json -m model.joblib -d {desired} --policy policy.json"
    assert cfk(f"protect train.csv cf.csv {given} -o released.json").exit_code in (0, 3)
    cfk(f"verify released.json train.csv {given} --rerun", 0)
