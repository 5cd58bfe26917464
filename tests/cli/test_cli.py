from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.cli.frame import warnings_in_a_line
from cfk_plugin.errors import MisreadColumnWarning
from commands import cfk

CANARY = "canary-7f3a"
FEATURES = ["age", "sex", "salary"]


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(120)],
            "age": random.integers(18, 80, 120),
            "sex": random.integers(0, 2, 120),
            "salary": random.integers(20, 120, 120),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 110, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def model(train: pd.DataFrame) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3, random_state=0).fit(
        train[FEATURES], train["outcome"]
    )


@pytest.fixture
def folder(
    tmp_path: Path,
    train: pd.DataFrame,
    model: DecisionTreeClassifier,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    monkeypatch.chdir(tmp_path)
    train.to_csv("train.csv", index=False)
    train[FEATURES][model.predict(train[FEATURES]) == "yes"].head(5).to_csv("cf.csv", index=False)
    train[train["outcome"] == "no"].head(5).to_csv("facts.csv", index=False)
    joblib.dump(model, "model.joblib")
    write_schema()
    return tmp_path


def write_schema(**changes: Any) -> None:
    schema = {
        "quasi_identifiers": ["age", "sex"],
        "identifiers": ["name"],
        "target": "outcome",
        "nominal": ["sex"],
    }
    Path("schema.json").write_text(json.dumps(schema | changes))


INPUTS = "protect train.csv cf.csv -s schema.json -m model.joblib --desired yes"
PROTECT = f"{INPUTS} --factuals facts.csv"
LOOKUP = f"{INPUTS} --guarantee lookup"
RELEASE = f"{PROTECT} --k 5 -o released.json"
EXPLAIN = "explain train.csv facts.csv -s schema.json -m model.joblib -d yes --k 5"
VERIFY = "verify released.json --train train.csv -s schema.json"


def test_help_has_examples_and_every_command(folder: Path) -> None:
    assert all(name in cfk("--help").output for name in ("demo", "protect", "verify", "plugins"))
    assert "cfk protect train.csv cf.csv" in cfk("protect --help").output


def test_starting_imports_nothing_heavy() -> None:
    check = "import sys, cfk_plugin.cli; sys.exit(bool({'pandas', 'mlflow', 'sklearn'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=30)


def test_protect_writes_json_that_verify_passes(folder: Path) -> None:
    result = cfk(RELEASE)
    assert "5 released, 0 withheld" in result.stderr
    assert result.stdout == ""
    content = json.loads(Path("released.json").read_text(encoding="utf-8"))
    assert [entry["status"] for entry in content["explanations"]] == ["released"] * 5
    assert "pass" in cfk(VERIFY).stdout
    assert "fewer than k people" in cfk(f"{VERIFY} --k 60", code=1).stdout


def test_explain_writes_json_that_verify_passes(folder: Path) -> None:
    """With the model and the queries, every answer is true."""
    result = cfk(f"{EXPLAIN} -o released.json")
    assert "5 released, 0 withheld in released.json" in result.stderr
    verdict = cfk(f"{VERIFY} -m model.joblib --desired yes --queries facts.csv").stdout
    assert "5 of 5 answers are true for the model" in verdict


def test_explain_writes_what_python_answers(
    folder: Path, train: pd.DataFrame, model: DecisionTreeClassifier
) -> None:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=["age", "sex"],
        identifiers=["name"],
        target="outcome",
        nominal=["sex"],
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(Population.from_frame(train, schema), model, "yes")
    queries = train[train["outcome"] == "no"].head(5)
    answers = anonymizer.explain(queries)
    content = json.loads(cfk(EXPLAIN).stdout)
    sentences = [entry.pop("sentence") for entry in content["explanations"]]
    assert sentences == answers.text(queries)
    assert content == json.loads(answers.to_json())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_explain_writes_tables_with_sentences(folder: Path, suffix: str) -> None:
    cfk(f"{EXPLAIN} -o answers.{suffix}")
    frame = pd.read_csv("answers.csv") if suffix == "csv" else pd.read_parquet("answers.parquet")
    entries = json.loads(cfk(EXPLAIN).stdout)["explanations"]
    assert frame["sentence"].tolist() == [entry["sentence"] for entry in entries]
    assert "name" not in frame.columns


def test_explain_withholds_what_asks_for_too_many_changes(folder: Path) -> None:
    write_schema(immutable=["salary"])
    entries = json.loads(cfk(f"{EXPLAIN} --max-changes 1", code=3).stdout)["explanations"]
    assert {entry.get("reason") for entry in entries} == {None, "no_actionable_answer"}


def test_explain_logs_to_an_experiment(mlflow_store: str, folder: Path) -> None:
    import mlflow

    result = cfk(f"{EXPLAIN} -o answers.json --experiment credit")
    experiment = mlflow.get_experiment_by_name("credit").experiment_id
    (run,) = mlflow.search_runs([experiment], output_format="list")
    assert run.info.run_id in result.stderr


def test_explain_needs_no_answer_for_who_has_the_outcome(folder: Path) -> None:
    result = cfk(EXPLAIN.replace("facts.csv", "cf.csv"))
    assert "5 withheld: the model already gives the desired outcome" in result.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_protect_writes_tables(folder: Path, suffix: str) -> None:
    cfk(f"{PROTECT} --k 5 -o released.{suffix}")
    frame = pd.read_csv("released.csv") if suffix == "csv" else pd.read_parquet("released.parquet")
    assert len(frame) == 5
    assert frame["k"].min() >= 5
    assert "name" not in frame.columns


def test_protect_reads_parquet_and_policy(folder: Path, train: pd.DataFrame) -> None:
    train.to_parquet("train.parquet")
    Path("policy.json").write_text(json.dumps({"k": 50, "objective": "ncp"}))
    command = f"{PROTECT} --policy policy.json --k 6".replace("train.csv", "train.parquet")
    policy = json.loads(cfk(command).stdout)["policy"]
    assert (policy["k"], policy["objective"]) == (6, "ncp")


def test_protect_withholds_what_asks_for_too_many_changes(folder: Path) -> None:
    command = f"{PROTECT} --k 5 --guarantee lookup --max-changes"
    one = json.loads(cfk(f"{command} 1", code=1).stdout)["explanations"]
    assert {entry["reason"] for entry in one} == {"no_actionable_answer"}
    three = json.loads(cfk(f"{command} 3").stdout)["explanations"]
    assert {entry["status"] for entry in three} == {"released"}
    assert "--max-changes" in cfk(f"{LOOKUP} --k 5 --max-changes 2", code=2).stderr
    assert "max_changes must be" in cfk(f"{command} 0", code=2).stderr


def test_protect_with_an_mlflow_model_and_tracking(
    mlflow_store: str, folder: Path, model: DecisionTreeClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    mlflow.sklearn.save_model(
        model, "saved", serialization_format="cloudpickle", pip_requirements=["scikit-learn"]
    )
    result = cfk(f"{RELEASE.replace('model.joblib', 'saved')} --experiment credit")
    experiment = mlflow.get_experiment_by_name("credit").experiment_id
    (run,) = mlflow.search_runs([experiment], output_format="list")
    assert run.info.run_id in result.stderr
    assert run.data.metrics["cfk.asked"] == 5


def test_some_withheld_is_review_and_none_released_is_fail(
    folder: Path, train: pd.DataFrame, model: DecisionTreeClassifier
) -> None:
    features = train[FEATURES]
    no = features[model.predict(features) == "no"].head(2)
    no.to_csv("cf.csv", index=False)
    assert (
        "does not give the desired outcome"
        in cfk(f"{LOOKUP} --k 5 -o released.json", code=1).stderr
    )
    assert "review" in cfk(VERIFY, code=3).stdout
    pd.concat([no, features[model.predict(features) == "yes"].head(2)]).to_csv(
        "cf.csv", index=False
    )
    assert "2 released, 2 withheld" in cfk(f"{LOOKUP} --k 5 -o released.json", code=3).stderr


def test_numeric_labels_are_understood(folder: Path, train: pd.DataFrame) -> None:
    labels = (train["outcome"] == "yes").astype(float)
    joblib.dump(
        DecisionTreeClassifier(max_depth=3, random_state=0).fit(train[FEATURES], labels),
        "model.joblib",
    )
    cfk(PROTECT.replace("yes", "1"))


WRONG = {
    "no training file": (
        "protect nope.csv cf.csv -s schema.json -m model.joblib --factuals facts.csv",
        "nope.csv: no such file",
    ),
    "no counterfactuals": (
        "protect train.csv nope.csv -s schema.json -m model.joblib --factuals facts.csv",
        "nope.csv: no such file",
    ),
    "no schema": (
        "protect train.csv cf.csv -s nope.json -m model.joblib --factuals facts.csv",
        "nope.json: no such file",
    ),
    "no model": (
        "protect train.csv cf.csv -s schema.json -m nope.joblib --factuals facts.csv",
        "nope.joblib: no such file",
    ),
    "no policy": (f"{PROTECT} --policy nope.json", "nope.json: no such file"),
    "k too small": (f"{PROTECT} --k 1", "k must be a whole number >= 2"),
    "k no number": (f"{PROTECT} --k ten", "Invalid value for '--k'"),
    "k above the population": (
        f"{PROTECT} --k 1000",
        "k = 1000 is above the number of people, 120",
    ),
    "unknown method": (f"{PROTECT} --guarantee lookup --method magic", "magic"),
    "unknown objective": (f"{PROTECT} --objective speed", "objective must be one of"),
    "pureness above 1": (
        f"{PROTECT} --min-pureness 90",
        "min_pureness must be a number between 0 and 1",
    ),
    "a table that is none": (
        PROTECT.replace("cf.csv", "schema.json"),
        "must be .csv or .parquet, and this ends in .json",
    ),
    "unknown outcome": (
        PROTECT.replace("yes", "maybe"),
        "the model has no such outcome; its classes are text ('no', 'yes')",
    ),
    "unknown option": (f"{PROTECT} --speed 3", "No such option"),
    "output of another kind": (f"{PROTECT} -o out.xlsx", "out.xlsx: the output must end in"),
    "output folder missing": (f"{PROTECT} -o no/out.csv", "the folder does not exist"),
    "table as model": (PROTECT.replace("model.joblib", "train.csv"), "train.csv: not a model"),
    "unknown MLflow model": (
        PROTECT.replace("model.joblib", "models:/nope/1"),
        "MLflow cannot load this model",
    ),
    "model as table": (
        PROTECT.replace("train.csv", "model.joblib"),
        "this ends in .joblib",
    ),
    "no queries": (EXPLAIN.replace("facts.csv", "nope.csv"), "nope.csv: no such file"),
    "explain for an unknown outcome": (
        EXPLAIN.replace("yes", "maybe"),
        "the model has no such outcome",
    ),
    "explain with no change": (f"{EXPLAIN} --max-changes 0", "max_changes must be"),
    "answers of another kind": (f"{EXPLAIN} -o out.xlsx", "out.xlsx: the output must end in"),
    "table as released": ("verify train.csv --train train.csv", "train.csv: not valid JSON"),
    "no table": ("verify schema.json", "Missing option '--train'"),
    "queries without a model": (
        "verify schema.json --train train.csv --queries cf.csv",
        "--queries needs --model",
    ),
    "released missing": ("verify nope.json --train train.csv", "nope.json: no such file"),
    "no patients": ("demo --patients 0", "Invalid value for '--patients'"),
    "demo with k = 1": ("demo --k 1", "k must be a whole number >= 2"),
    "unknown command": ("protekt", "No such command"),
}


def test_wrong_input_is_one_clear_line_and_exit_2(folder: Path, mlflow_store: str) -> None:
    for command, message in WRONG.values():
        result = cfk(command, code=2)
        assert message in result.stderr, command
        # Early releases of MLflow 3 tell how they make the tables of a store.
        told = [line for line in result.stderr.splitlines() if " INFO " not in line]
        assert len(told) == 1
        assert told[0].startswith("cfk: ")
        assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "a catalogue answers the person whom a counterfactual explains; give --factuals"),
        ("--guarantee lookup", "the schema says how age may change; give --factuals"),
        ("--factuals few.csv", "--factuals: 2 rows for 5 counterfactuals; give one each"),
        ("--factuals few.csv --desired maybe", "the model has no such outcome"),
    ],
)
def test_what_is_wrong_with_arguments_is_told_before_anything_is_fitted(
    folder: Path, train: pd.DataFrame, options: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("cfk_plugin.data.population.Population.from_frame", forbidden)
    monkeypatch.setattr("cfk_plugin.release.anonymizer.KAnonymizer.fit", forbidden)
    write_schema(monotone={} if "maybe" in options else {"age": "increase"})
    train[FEATURES].head(2).to_csv("few.csv", index=False)
    assert message in cfk(f"{INPUTS} {options}", code=2).stderr


def test_factuals_are_needed_where_a_value_is_never_advised(folder: Path) -> None:
    write_schema(never_advise={"age": [None]})
    assert "the schema says how age may change; give --factuals" in cfk(LOOKUP, code=2).stderr


TABLES = {
    "a longer row": (
        "age,salary\n1,7777,3\n",
        "cf.csv: not a readable CSV table; is a row longer than the header?",
    ),
    "a doubled name": ("age,salary,age\n1,7777,1\n", "cf.csv: two columns have the same name"),
    "row numbers": (",age,salary\n0,1,7777\n", "cf.csv: a column has no name"),
    "nothing": ("", "cf.csv: not a readable CSV table"),
}


def test_a_table_whose_columns_are_not_those_of_its_header_is_one_clear_line(folder: Path) -> None:
    for content, message in TABLES.values():
        Path("cf.csv").write_text(content)
        said = cfk(PROTECT, code=2).stderr
        assert message in said
        assert said.count("\n") == 1
        assert "7777" not in said


def test_a_column_may_be_called_as_missing_values_are_spelled(folder: Path) -> None:
    Path("na.csv").write_text("age,NA\n" + "".join(f"{20 + i},{i % 7}\n" for i in range(40)))
    assert "NA" in cfk("schema na.csv").output


SCHEMAS = {
    "no JSON": ("{", "schema.json: not valid JSON (line 1, column 2)"),
    "a list": ("[]", "no object at the top"),
    "unknown key": ('{"quasi_identifiers": ["age"], "secret": []}', "unknown key secret"),
    "no quasi-identifiers": ('{"sensitive": ["salary"]}', "quasi_identifiers is missing"),
    "a string for a list": (
        '{"quasi_identifiers": "age"}',
        "quasi-identifier columns must be a list of names, not one string",
    ),
    "unknown column": ('{"quasi_identifiers": ["agee"]}', "unknown column agee"),
    "bounds of the wrong form": (
        '{"quasi_identifiers": ["age"], "columns": {"age": {"bounds": 3}}}',
        "column 'age': bounds must be a list of values, got int",
    ),
    "a weight of a private column": (
        '{"quasi_identifiers": ["age"], "columns": {"salary": {"weight": 1}}}',
        "column 'salary': only quasi-identifiers can have a weight",
    ),
    "a setting that is not an object": (
        '{"quasi_identifiers": ["age"], "columns": {"age": [0, 99]}}',
        "columns must be an object, column to its settings",
    ),
    "an unknown setting": (
        '{"quasi_identifiers": ["age"], "columns": {"age": {"bound": [0, 99]}}}',
        "column 'age': unknown key bound; known are hierarchy, weight, bounds",
    ),
}


def test_a_wrong_schema_is_one_clear_line(folder: Path) -> None:
    for content, message in SCHEMAS.values():
        Path("schema.json").write_text(content)
        assert message in cfk(PROTECT, code=2).stderr


def test_a_pickle_that_is_no_model(folder: Path, train: pd.DataFrame) -> None:
    joblib.dump(train, "model.joblib")
    assert (
        "model.joblib: contains a DataFrame, which has no predict method"
        in cfk(PROTECT, code=2).stderr
    )
    Path("model.joblib").write_bytes(b"not a pickle")
    assert "model.joblib: the model cannot be loaded" in cfk(PROTECT, code=2).stderr


def test_a_wrong_policy_file(folder: Path) -> None:
    Path("policy.json").write_text('{"k": 5, "kk": 6}')
    assert (
        "policy.json: unknown setting kk" in cfk(f"{PROTECT} --policy policy.json", code=2).stderr
    )
    Path("policy.json").write_text('{"k": "ten"}')
    assert "k must be a whole number" in cfk(f"{PROTECT} --policy policy.json", code=2).stderr


def test_counterfactuals_without_a_feature(folder: Path) -> None:
    pd.read_csv("cf.csv").drop(columns="salary").to_csv("cf.csv", index=False)
    assert "salary" in cfk(PROTECT, code=2).stderr


def test_an_unexpected_error_shows_no_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError(CANARY)

    monkeypatch.setattr("cfk_plugin._files.read_table", broken)
    assert cfk(PROTECT, code=2).stderr == "cfk: unexpected KeyError; CFK_DEBUG=1 shows where\n"


def test_a_stopped_command_says_what_was_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cfk_plugin._files.read_table", stopped)
    assert cfk(PROTECT, code=2).stderr == "cfk: stopped; nothing was written\n"


def test_the_version_is_that_of_the_distribution() -> None:
    assert cfk("--version").stdout == f"cfk-plugin {version('cfk-plugin')}\n"


def test_a_schema_is_written_to_be_filled_in(folder: Path) -> None:
    result = cfk("schema train.csv -o new.json")
    content = json.loads(Path("new.json").read_text(encoding="utf-8"))
    assert content["quasi_identifiers"] == []  # nothing is guessed
    assert content["immutable"] == ["age", "sex"]  # proposed, by their names
    assert "quasi_identifiers" in cfk(PROTECT.replace("schema.json", "new.json"), code=2).stderr
    rows = {line.split()[0]: line for line in result.stderr.splitlines() if line.split()}
    assert "every row its own: identifiers?" in rows["name"]
    assert "the target?" in rows["outcome"]
    assert CANARY not in result.output
    content |= {
        "quasi_identifiers": ["age", "sex"],
        "identifiers": ["name"],
        "target": "outcome",
        "nominal": ["sex"],
        "immutable": [],
    }
    Path("new.json").write_text(json.dumps(content), encoding="utf-8")
    assert cfk(PROTECT.replace("schema.json", "new.json")).stdout == cfk(PROTECT).stdout
    assert "is there already" in cfk("schema train.csv -o new.json", code=2).stderr
    assert json.loads(cfk("schema train.csv").stdout)["target"] is None


def test_a_schema_proposes_what_nobody_can_change(folder: Path) -> None:
    rows = pd.DataFrame(
        {"sex": [1, 2, 1], "wage": [1.5, 2.5, 3.5], "Birth-Year": [1970, 1980, 1970]}
    )
    rows.to_csv("people.csv", index=False)
    result = cfk("schema people.csv")
    proposed = json.loads(result.stdout)
    assert proposed["immutable"] == ["sex", "Birth-Year"]
    assert proposed["never_advise"] == {}
    shown = " ".join(result.stderr.split())
    assert "immutable has sex, Birth-Year, by their names" in shown
    assert "nobody can change it: immutable" in shown
    assert "increase" not in shown
    rows.assign(customer_age=[30, 31, 32]).to_csv("people.csv", index=False)
    shown = " ".join(cfk("schema people.csv").stderr.split())
    assert '"monotone": {"customer_age": "increase"}' in shown


def test_people_who_need_no_change_do_not_count_as_withheld(folder: Path) -> None:
    facts = pd.read_csv("cf.csv")
    model = joblib.load("model.joblib")
    granted = facts[model.predict(facts) == "yes"].head(2)
    assert len(granted) == 2
    granted.to_csv("facts.csv", index=False)
    granted.to_csv("cf.csv", index=False)
    result = cfk(PROTECT, code=0)
    assert "2 withheld: the model already gives the desired outcome" in result.stderr


def test_a_schema_shows_how_much_columns_single_out(folder: Path) -> None:
    pd.DataFrame({"a": [1, 1, 2, 3], "b": ["x", "y", "y", "y"], "c": [0.5] * 4}).to_csv(
        "small.csv", index=False
    )
    lines = [line.split() for line in cfk("schema small.csv").stderr.splitlines()[1:4]]
    assert [line[:5] for line in lines] == [
        ["a", "numbers", "3", "50%", "50%"],  # 2 and 3 are alone
        ["b", "categories", "2", "25%", "100%"],  # x is alone; (1, x), (1, y), (2, y), (3, y)
        ["c", "numbers", "1", "0%", "100%"],
    ]


def with_numbers_as_text(path: str) -> None:
    rows = pd.read_csv(path)
    rows.assign(rent=[f"€ {1_000 + i % 12:,}" for i in range(len(rows))]).to_csv(path, index=False)


RENT = (
    "warning: column 'rent' has numbers as text, and is read as categories; write plain numbers, or"
    " convert the column with pd.to_numeric(column, errors='coerce'). If the numbers are codes, name"
    " the column in nominal"
)


def test_a_schema_to_fill_in_names_columns_that_would_be_misread(folder: Path) -> None:
    with_numbers_as_text("train.csv")
    assert cfk("schema train.csv -o new.json").stderr.splitlines().count(RENT) == 1


@pytest.mark.filterwarnings("always::cfk_plugin.errors.MisreadColumnWarning")
def test_a_misread_column_is_named_in_a_line(folder: Path) -> None:
    for name in ("train.csv", "cf.csv", "facts.csv"):
        with_numbers_as_text(name)
    result = cfk(PROTECT)
    assert result.stderr.splitlines()[0] == RENT
    assert result.stderr.count("warning") == 1
    assert ".py" not in result.stderr
    write_schema(nominal=["sex", "rent"])
    assert "warning" not in cfk(PROTECT).stderr


@pytest.mark.filterwarnings("always::cfk_plugin.errors.LookupGuaranteeWarning")
def test_every_warning_of_ours_is_a_line_of_a_command(folder: Path) -> None:
    stderr = cfk(LOOKUP).stderr
    assert stderr.startswith("warning: the lookup guarantee counts the people in a region;")
    assert stderr.count("warning") == 1


def test_warnings_of_other_libraries_are_shown_as_python_shows_them() -> None:
    with pytest.warns(UserWarning, match="of another library"), warnings_in_a_line():
        warnings.warn("of another library", stacklevel=1)


def test_a_warning_that_comes_again_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), warnings_in_a_line():
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn(MisreadColumnWarning("read me"), stacklevel=1)
    assert capsys.readouterr().err == "warning: read me\n"


def test_a_table_with_semicolons_is_refused_by_its_header(folder: Path) -> None:
    pd.read_csv("train.csv").to_csv("train.csv", index=False, sep=";")
    assert "train.csv: the header has semicolons" in cfk("schema train.csv", code=2).stderr


def test_plugins_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint, entry_points

    groups = {"cfk_plugin": [EntryPoint("nearest", "cfk_adapters.nearest", "cfk_plugin")]}
    monkeypatch.setattr(
        "cfk_plugin.plugins.entry_points",
        lambda group: groups.get(group) or entry_points(group=group),
    )
    output = cfk("plugins").output
    assert "nearest" in output
    assert "cfk_adapt" in output
    assert "generators, by name: c-chvae, " in output
    monkeypatch.setattr("cfk_plugin.plugins.entry_points", lambda group: [])
    assert cfk("plugins").output == "no plugins are installed\n"


def test_a_plugin_that_fails_to_load_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("broken", "no_such_module", "cfk_plugin")
    monkeypatch.setattr("cfk_plugin.plugins.entry_points", lambda group: [point])
    assert "plugin 'broken'" in cfk("plugins", code=2).stderr


def test_as_a_process_with_pipes_there_is_no_bar_and_no_colour(folder: Path) -> None:
    command = [sys.executable, "-m", "cfk_plugin.cli", *PROTECT.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["explanations"]
    assert "\x1b" not in done.stderr
    assert "5 released, 0 withheld" in done.stderr.splitlines()
