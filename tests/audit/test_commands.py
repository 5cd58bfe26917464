"""`cfk audit linkage, epsilon, all` end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin.audit import ATTACKS
from cfk_plugin.cli import app
from cfk_plugin.data.formats import faults

CANARY, MADE_UP = "canary-5c1d", "made-up-31b9"
FEATURES = ["age", "sex", "salary"]
SCHEMA = {
    "quasi_identifiers": ["age", "sex"],
    "identifiers": ["name"],
    "target": "outcome",
    "nominal": ["sex"],
}
FUNCTIONS = f"""
import numpy as np

def noisy(rows, random_state):
    assert "name" not in rows
    return (rows["town"] == "{MADE_UP}").sum() + np.random.default_rng(random_state).laplace()

def exact(rows):
    return rows["age"].sum()

def copied(rows):
    return rows

def broken(rows):
    raise ValueError(str(rows))

def size(output):
    return len(output)

def richer(train, labels, model, desired, seed):
    return lambda queries: queries.assign(salary=120)

number = 3
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder, random, n = tmp_path_factory.mktemp("audited"), np.random.default_rng(4), 150
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(n)],
            "age": random.integers(18, 80, n),
            "sex": random.integers(0, 2, n),
            "salary": random.integers(20, 120, n),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 110, "yes", "no")
    train, holdout = frame.head(110), frame.tail(40)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(
        train[FEATURES], train["outcome"]
    )
    yes = model.predict(train[FEATURES]) == "yes"
    similar = [frame.drop(columns="name").assign(salary=frame["salary"] + i) for i in range(3)]
    many = pd.concat(similar, ignore_index=True)
    towns = pd.DataFrame(
        {
            "name": frame["name"],
            "age": frame["age"],
            "town": [f"{CANARY}-{i % 4}" for i in range(n)],
        }
    )
    made_up = pd.DataFrame(
        {"age": np.arange(40) % 90, "town": [f"{MADE_UP}-{i}" for i in range(40)]}
    )
    for name, rows in {
        "train": train,
        "holdout": holdout,
        "cf": train[yes].head(6)[FEATURES],
        "facts": train[~yes].head(6)[FEATURES],
        "people": many.assign(
            outcome=np.where(many["salary"] + random.normal(0, 25, 3 * n) > 70, "yes", "no")
        ),
        "texts": many.assign(town=[f"{CANARY}-{i}" for i in range(3 * n)]),
        "towns": towns.head(60),
        "many": made_up,
        "thin": pd.DataFrame({"age": [30]}),
    }.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    for name, content in {
        "schema": SCHEMA,
        "people": {**SCHEMA, "identifiers": []},
        "towns": {
            "quasi_identifiers": ["age"],
            "identifiers": ["name"],
            "columns": {"age": {"bounds": [0, 99]}},
        },
        "canary": {"age": 99, "town": MADE_UP},
        "policy": {"k": 7, "guarantee": "catalogue"},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "bad.json").write_text("{", encoding="utf-8")
    (folder / "audited_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    for name, thing in {
        "model": model,
        "fresh": LogisticRegression(max_iter=200),
        "length": len,
    }.items():
        joblib.dump(thing, folder / f"{name}.joblib")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def _folder(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, content in files.items():
        Path(name).write_bytes(content)


def cfk(command: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["audit", *command.split()])
    assert CANARY not in result.output
    assert MADE_UP not in result.output
    assert result.exit_code == code, result.output
    return result


def report(path: str = "out.json") -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    assert CANARY not in text
    assert MADE_UP not in text
    content: dict[str, Any] = json.loads(text)
    assert faults(content, "audit-1") == []
    return content


def run_of(experiment: str, result: Result) -> Any:
    import mlflow

    (run,) = mlflow.search_runs(experiment_names=[experiment], output_format="list")
    assert run.info.run_id in result.stderr
    assert run.info.status == "FINISHED"
    return run


# --- linkage --------------------------------------------------------------------------------------

OF_MODEL = "-s schema.json -m model.joblib"
LINKAGE = f"linkage train.csv cf.csv {OF_MODEL} --desired yes --k 5 --factuals facts.csv"
FAST = "--attacks linkage,model_filter"


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_what_a_guarantee_promises_holds(guarantee: str) -> None:
    result = cfk(f"{LINKAGE} --guarantee {guarantee} --holdout holdout.csv -o out.json")
    found = report()
    assert (found["verdict"], found["policy"]["guarantee"]) == ("pass", guarantee)
    assert [one["attack"] for one in found["results"]] == list(ATTACKS)
    assert all(f"{name}: " in result.stdout for name in ATTACKS)
    verdict = f"pass: 6 of 6 released, guarantee {guarantee}, k = 5"
    assert result.stdout.splitlines()[0] == verdict
    controls = {one["attack"]: one["control"] for one in found["results"]}
    assert controls["linkage"]["n"] > 0


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.LookupGuaranteeWarning")
def test_lookup_promises_that_are_not_tested_are_exit_code_3() -> None:
    lookup = f"{LINKAGE} --guarantee lookup"
    cfk(f"{lookup} --method exact {FAST} -o out.json")
    assert [check["name"] for check in report()["checks"]] == ["linkage/k_min"]
    assert "linkage/k_min: not tested" in cfk(f"{lookup} --attacks uniqueness", code=3).stdout
    undesired = lookup.replace("cf.csv", "facts.csv")
    assert "0 of 6 released" in cfk(f"{undesired} {FAST}", code=3).stdout


def test_a_broken_promise_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfk_plugin.audit import AuditReport

    monkeypatch.setattr(AuditReport, "verdict", "fail")
    assert "fail: " in cfk(f"{LINKAGE} --guarantee lookup {FAST}", code=1).stdout


def test_a_policy_file_a_seed_a_limit_and_factuals_count(mlflow_store: str) -> None:
    command = LINKAGE.replace("--k 5", "--policy policy.json").replace("yes", "opposite")
    options = f"--limit 4 --seed 9 {FAST} -o out.json --experiment audits"
    run, found = run_of("audits", cfk(f"{command} {options}")), report()
    assert (found["policy"]["k"], found["asked"], found["seed"]) == (7, 4, 9)
    assert run.data.metrics["audit/model_filter/k_consistent_min"] >= 7
    assert run.data.tags["cfk.audit"] == "linkage"


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_the_report_judges_what_the_audit_judges_as_it_does(
    guarantee: str, mlflow_store: str
) -> None:
    """Released and attacked by the same command line, objective included; nothing of it fails in
    the report.
    """
    from cfk_plugin import PrivacyReport

    files, rules = (
        f"train.csv cf.csv {OF_MODEL} --desired yes --factuals facts.csv",
        f"--k 5 --guarantee {guarantee} --objective ncp",
    )
    made = CliRunner().invoke(
        app, f"protect {files} {rules} --experiment both -o released.json".split()
    )
    assert made.exit_code in (0, 3), made.output
    cfk(f"linkage {files} {rules} --experiment both -o out.json")
    promised = {check["name"]: check for check in report()["checks"]}
    assert (
        report()["policy"]
        == json.loads(Path("released.json").read_text(encoding="utf-8"))["policy"]
    )
    data = PrivacyReport.of_experiment("both").data
    lines = {line.id: line for line in data.checks}
    assert data.verdict == "review"
    for attack in {name.partition("/")[0] for name in promised}:
        least = min(
            check["value"] for name, check in promised.items() if name.startswith(f"{attack}/")
        )
        line = lines[f"attack_{attack}"]
        assert (line.status, line.measured.value, line.threshold.value) == ("pass", least, 5)


# --- epsilon --------------------------------------------------------------------------------------

EPSILON = "epsilon towns.csv -s towns.json --claimed 1 --canary canary.json --runs 40"
FIT = f"{EPSILON} --fit audited_functions"


def test_a_claim_that_is_not_refuted_is_logged_and_seeded(mlflow_store: str) -> None:
    import mlflow

    result = cfk(f"{FIT}:noisy --delta 0.001 --seed 5 -o out.json --experiment audits")
    assert "80 runs" in result.stderr
    assert "these sizes could show at most 1.60" in result.stdout
    assert "claim epsilon = 1, delta = 0.001 is not refuted, which does not prove" in " ".join(
        result.stdout.split()
    )
    found, run = report(), run_of("audits", result)
    assert (found["verdict"], found["figures"]["runs"], found["relation"]) == (
        "pass",
        40,
        "add-remove",
    )
    assert run.data.metrics["audit/epsilon/epsilon_low"] < found["figures"]["ceiling"]
    assert run.data.tags["cfk.audit.epsilon.verdict"] == "pass"
    assert (run.data.params["audit.epsilon.claimed"], run.data.params["audit.epsilon.delta"]) == (
        "1.0",
        "0.001",
    )
    assert mlflow.artifacts.load_dict(f"runs:/{run.info.run_id}/cfk/audit-epsilon.json") == found
    cfk(f"{FIT}:noisy --delta 0.001 --seed 5 -o again.json")
    assert report("again.json") == found


def test_a_claim_that_is_refuted_is_exit_code_1_and_one_that_cannot_be_is_3() -> None:
    result = cfk(f"{FIT}:exact --relation replace-one -o out.json", code=1)
    assert "fail: the claim epsilon = 1 is refuted" in result.stdout
    assert "note: every run of a world gave the same output" in result.stdout
    assert report()["relation"] == "replace-one"
    cfk(f"{FIT}:copied --score audited_functions:size", code=1)
    result = cfk(f"{FIT.replace('--claimed 1', '--claimed 3')}:exact", code=3)
    assert "so few runs cannot refute the claim" in result.stderr
    assert "at least 152 runs in each world" in " ".join(result.stdout.split())
    result = cfk(f"{FIT.replace('canary.json', 'many.csv')}:copied --one-run -o out.json", code=1)
    assert "40 made-up people" in result.stdout
    assert (report()["kind"], report()["figures"]["canaries"]) == ("epsilon_one_run", 40)


def test_our_own_prototypes_are_audited_by_name() -> None:
    pytest.importorskip("opendp", reason="the extra [dp] is not installed")
    schema = json.loads(Path("towns.json").read_text(encoding="utf-8"))
    towns = [MADE_UP, *(f"{CANARY}-{i}" for i in range(4))]
    schema["columns"]["town"] = {"categories": towns}
    schema["nullable"] = []
    Path("towns.json").write_text(json.dumps(schema), encoding="utf-8")
    assert "epsilon = 1 is not refuted" in cfk(f"{EPSILON} --method dp -o out.json").stdout
    assert report()["figures"]["epsilon_low"] < 1


# --- all ------------------------------------------------------------------------------------------

ALL = "people.csv -s people.json -d yes -m fresh.joblib"


def audits(path: str = "out.json") -> dict[tuple[str, str], dict[str, Any]]:
    content = report(path)
    assert content["kind"] == "all"
    return {(one["owner"], one["audit"]): one for one in content["reports"]}


@pytest.mark.slow
def test_what_will_be_shown_is_said_before_and_what_was_found_after(mlflow_store: str) -> None:
    import mlflow

    only = "linkage,membership,attribute_inference"
    result = cfk(f"{ALL} --against raw,exact --only {only} -o out.json --experiment leaks")
    said, shown = (" ".join(text.split()) for text in (result.stderr, result.stdout))
    for part in (
        "5 audits; models are trained on 135 of 450 people, too few for 2,000",
        "left out: linkage of raw: it attacks regions of k people",
        "membership: sees an AUC of",
    ):
        assert part in said
    assert set(audits()) == {
        ("raw", "attribute_inference"),
        ("raw", "membership"),
        *(("exact", name) for name in only.split(",")),
    }
    for one in audits().values():
        for found in one["results"]:
            assert found["scenario"] in shown
            assert found["main"]["low"] <= (found["main"]["value"] or 0.5) <= found["main"]["high"]
    raw, protected = (
        audits()[name, "attribute_inference"]["results"][0] for name in ("raw", "exact")
    )
    assert raw["figures"]["fits_one"] > 0
    assert protected["figures"]["fits_one"] == 0
    runs = {
        run.info.run_name: run
        for run in mlflow.search_runs(experiment_names=["leaks"], output_format="list")
    }
    assert set(runs) == {"audit of raw", "audit of exact"}
    for name, run in runs.items():
        assert run.data.metrics["audit/membership_cfd/baseline"] == 0.5
        kept = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id, "cfk")}
        assert kept == {
            f"cfk/audit-{audit}.json" for owner, audit in audits() if name.endswith(owner)
        }


def test_the_report_says_what_was_left_out() -> None:
    cfk(f"{ALL} --against raw --only linkage,attribute_inference -o out.json")
    content = report()
    assert content["people"] == 450
    assert set(audits()) == {("raw", "attribute_inference")}
    assert content["left_out"] == [
        {
            "owner": "raw",
            "audit": "linkage",
            "reason": "it attacks regions of k people, and this owner gives out none",
        }
    ]


def test_an_explainer_of_ones_own_is_a_function_that_makes_it() -> None:
    command = f"{ALL} --against raw --only attribute_inference"
    cfk(f"{command} --explainer audited_functions:richer -o out.json")
    found = {
        result["attack"]: result for result in audits()["raw", "attribute_inference"]["results"]
    }
    assert found["attribute_inference_linkage"]["figures"]["answers"] > 10


def test_a_library_that_is_missing_is_named_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    result = cfk(f"{ALL} --against raw,dp", code=2)
    assert 'pip install "cfk-plugin[dp]"' in result.stderr
    assert "done" not in result.stderr


# --- wrong input ----------------------------------------------------------------------------------

NO_CANARY = f"{EPSILON.replace('--canary canary.json', '')} --fit audited_functions:noisy"
WRONG = {
    LINKAGE.replace("linkage", "linkag", 1): "'linkag' is neither a table nor one of epsilon,",
    LINKAGE.replace("train.csv", "nope.csv"): "nope.csv: no such file",
    f"{LINKAGE} --holdout nope.csv": "nope.csv: no such file",
    f"{LINKAGE} --holdout thin.csv": "holdout: missing columns",
    f"{LINKAGE} --attacks linkage,magic": "--attacks magic: known are linkage",
    f"{LINKAGE} --attacks ,": "--attacks names nothing",
    f"{LINKAGE} --guarantee magic": "guarantee must be one of",
    LINKAGE.replace(
        "facts.csv", "thin.csv"
    ): "--factuals: 1 rows for 6 counterfactuals; give one each",
    f"{LINKAGE} -o out.csv": "out.csv: the report must end in .json",
    f"{LINKAGE} -o no/out.json": "the folder does not exist",
    f"{LINKAGE} --limit 0": "Invalid value for '--limit'",
    f"{LINKAGE} --seed -1": "Invalid value for '--seed'",
    LINKAGE.replace("--k 5", "--k 1000"): "k = 1000 is above the number of people, 110",
    NO_CANARY: "--canary is missing: give one made-up person",
    f"{NO_CANARY} --one-run": "give 20 made-up people",
    f"{FIT}:noisy --one-run": "at least 8 canaries, got 1",
    f"{FIT.replace('canary.json', 'thin.csv')}:noisy": "check town",
    f"{FIT.replace('canary.json', 'bad.json')}:noisy": "bad.json: not a row",
    f"{EPSILON} --fit nowhere:noisy": "nowhere:noisy: cannot be imported (ModuleNotFoundError)",
    f"{FIT}:none": "the module has no none",
    f"{FIT}:number": "audited_functions:number: is not a function",
    FIT: "give a function as module:function",
    f"{FIT}:broken": "the audited function failed (ValueError)",
    f"{FIT}:noisy --relation swap": "relation must be one of",
    f"{FIT}:noisy --delta 1": "delta must be at least 0 and below 1",
    EPSILON: "give --fit module:function, or --method (dp), and not both",
    f"{FIT}:noisy --method dp": "and not both",
    f"{FIT}:noisy -o out.csv": "the report must end in .json",
    f"{ALL} -o out.csv": "the report must end in .json",
    f"{EPSILON} --method magic": "unknown method magic; known: dp",
    f"{EPSILON} --method dp --score a:b": "--score goes with --fit",
    f"{EPSILON} --method dp": "'town' lacks categories",
    f"{FIT.replace('--runs 40', '--runs 4')}:noisy": "Invalid value for '--runs'",
    f"{ALL} --against raw,dp --epsilon 0": "epsilon must be",
    f"{ALL} --only linkage --against exact --k 136": (
        "no audit can be run. linkage of exact: a model is trained on 135 people, fewer than"
        " k = 136"
    ),
    f"{ALL} --only guessing": "known are linkage, attribute_inference, membership",
    f"{ALL} --only linkage --against raw": "no audit can be run. linkage of raw: it attacks regions of k people",
    f"{ALL} --against raw,secret": "--against secret: known are raw, exact, catalogue, dp, dp-moved",
    f"{ALL} --explainer oracle": "no generator 'oracle'",
    f"{ALL} --explainer audited_functions:nobody": "audited_functions:nobody: cannot be imported",
    f"{ALL} -d maybe": "--desired maybe: some people must have it and some not; outcome has no, yes",
    f"{ALL} --target salary": "--target salary: is a feature; outcomes are none",
    f"{ALL} --target nobody": "--target nobody: is no column of the table",
    f"{ALL} -m length.joblib": "cannot be trained again; give a scikit-learn classifier or pipeline",
    # Text that no step of the model encodes: what scikit-learn raises quotes it.
    f"{ALL.replace('people.csv', 'texts.csv')} --only membership --against raw": "cannot be fitted",
}


@pytest.mark.parametrize(("command", "message"), WRONG.items())
def test_wrong_input_is_one_clear_line(command: str, message: str) -> None:
    result = cfk(command, code=2)
    (line,) = [
        line for line in result.stderr.splitlines() if line.startswith("cfk: ")
    ] or result.stderr.splitlines()
    assert message in " ".join(line.split())
    assert "Traceback" not in result.output
