"""The report of real runs in every form: made, saved, logged, read back, compared, and asked for by a command."""

from __future__ import annotations

import csv
import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner, Result

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, PrivacyReport, Schema
from cfk_plugin.cli import app
from cfk_plugin.errors import CFKError, InputError, TrackingError
from cfk_plugin.report.delivery import SOURCES, VERDICT
from cfk_plugin.serving.card import LONGEST
from tracking_server import tracking_server

CANARY = "canary-7f3a"
FORMS = (".html", ".json", ".md", ".csv", ".xml")


@pytest.fixture(scope="module")
def explanations() -> Explanations:
    """Return what was released for some queries; each private value of the training rows is a canary."""
    random = np.random.default_rng(0)
    pay = [f"{CANARY}-{place % 4}" for place in range(200)]
    train = pd.DataFrame({"age": random.integers(20, 60, 200), "town": random.choice(list("ABC"), 200), "pay": pay})
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "town"]))
    with warnings.catch_warnings(action="ignore"):
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, anonymity_set="eligible")).fit(
            population, model=_accepts, desired=1
        )
    return anonymizer.transform(train[_accepts(train) == 1].head(20))


def _accepts(rows: pd.DataFrame) -> Any:
    return rows["pay"].isin([f"{CANARY}-1", f"{CANARY}-2"]).to_numpy(dtype=int)


@pytest.fixture(scope="module")
def stored(
    tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path, explanations: Explanations
) -> tuple[str, PrivacyReport]:
    """Log a run to a store that no test writes to; return the store and the run's report."""
    folder = tmp_path_factory.mktemp("stored")
    shutil.copyfile(_empty_mlflow_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    MlflowClient(uri).create_experiment("tests", artifact_location=(folder / "artifacts").as_uri())
    run_id = explanations.log(experiment="tests", tracking_uri=uri)
    return uri, PrivacyReport.of_runs(run_id, tracking_uri=uri)


@pytest.fixture
def report(stored: tuple[str, PrivacyReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyReport:
    """Return the report of the run in the store that is only read, which is the one in use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stored[0])
    return stored[1]


@pytest.fixture
def run_id(report: PrivacyReport) -> str:
    """Return the run in the store that is only read."""
    return report.run_ids[0]


@pytest.fixture
def log(mlflow_store: str, explanations: Explanations) -> Callable[[], str]:
    """Return a function that logs the explanations to a run of its own in a store of its own."""
    return lambda: explanations.log(experiment="tests")


def cfk(command: str, code: int | None = None) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    if code is not None:
        assert result.exit_code == code, result.output
    return result


def test_every_form_is_saved_by_its_suffix(report: PrivacyReport, tmp_path: Path) -> None:
    for suffix in FORMS:
        report.save(tmp_path / f"report{suffix}")
    texts = {suffix: (tmp_path / f"report{suffix}").read_bytes().decode() for suffix in FORMS}
    assert json.loads(texts[".json"])["report"]["verdict"] == report.verdict == "review"
    assert texts[".html"].startswith("<!doctype html>")
    assert "<script" not in texts[".html"]
    assert texts[".md"].startswith("# ")
    names = [check.id for check in report.data.checks]
    assert [line["id"] for line in csv.DictReader(texts[".csv"].splitlines())] == names
    assert [case.get("name") for case in ET.fromstring(texts[".xml"]).iter("testcase")] == names
    assert not [suffix for suffix, text in texts.items() if CANARY in text]
    assert sorted(path.name for path in tmp_path.glob("*report*")) == sorted(f"report{suffix}" for suffix in FORMS)


def test_the_command_in_a_report_makes_it_again_byte_by_byte(report: PrivacyReport) -> None:
    command = report.data.report["command"]
    assert command == f"cfk report --run {report.run_ids[0]} --edition internal"
    lines = cfk(f"{command.removeprefix('cfk ')} -o a.html -o a.json", 3).stdout.splitlines()
    assert Path("a.json").read_text(encoding="utf-8") == report.to_json()
    assert Path("a.html").read_text(encoding="utf-8") == report.to_html()
    assert PrivacyReport.read("a.json").to_html() == report.to_html()
    assert lines[0] == "verdict: review (internal edition)"
    for line, check in zip(lines[2:], report.data.checks, strict=False):
        assert line.startswith(check.status.replace("_", " "))
        assert check.id in line.split()


def test_settings_stand_in_the_command_without_folders(report: PrivacyReport, run_id: str, tmp_path: Path) -> None:
    cfk("report --template inputs.yaml", 0)
    report.save("first.json")
    again = PrivacyReport.of_runs(
        run_id, until="2999-01-01", preset="paper", inputs=tmp_path / "inputs.yaml", previous=tmp_path / "first.json"
    )
    assert again.data.report["command"] == (
        f"cfk report --run {run_id} --until 2999-01-01 --edition internal --preset paper --inputs inputs.yaml "
        "--previous first.json"
    )


def test_a_report_of_one_run_is_logged_beside_it(log: Callable[[], str]) -> None:
    run_id = log()
    report = PrivacyReport.of_runs(run_id)
    assert report.log() == run_id
    client = MlflowClient()
    there = {file.path for file in client.list_artifacts(run_id, "cfk")}
    assert {"cfk/report.html", "cfk/report.json", "cfk/report.md"} <= there
    assert client.get_run(run_id).data.tags[VERDICT] == "review"
    assert PrivacyReport.read(run_id).to_json() == report.to_json()
    assert PrivacyReport.of_runs(run_id).to_json() == report.to_json()  # it is not made from itself


def test_a_report_of_several_runs_is_logged_to_a_run_of_its_own(log: Callable[[], str]) -> None:
    runs = [log(), log()]
    report = PrivacyReport.of_experiment("tests")
    own = report.log()
    client = MlflowClient()
    found = client.get_run(own)
    assert own not in runs
    assert found.info.status == "FINISHED"
    assert found.info.end_time
    assert found.info.experiment_id == client.get_run(runs[0]).info.experiment_id
    assert found.data.tags[SOURCES].split(",") == runs
    assert found.data.tags[VERDICT] == "review"
    assert PrivacyReport.read(own).to_json() == PrivacyReport.of_experiment("tests").to_json() == report.to_json()


def test_the_external_edition_stands_beside_the_internal_one(log: Callable[[], str]) -> None:
    run_id = log()
    internal = PrivacyReport.of_runs(run_id)
    internal.log()
    external = PrivacyReport.of_runs(run_id, edition="external")
    external.log()
    assert PrivacyReport.read(run_id).data.report["edition"] == "internal"
    there = {file.path for file in MlflowClient().list_artifacts(run_id, "cfk")}
    assert "cfk/report-external.html" in there
    forms = (external.to_json(), external.to_markdown(), external.to_csv(), external.to_junit(), external.model_card())
    assert not [form for form in forms if run_id in form]
    with pytest.raises(InputError, match="cannot be compared"):
        external.compare(internal)
    MlflowClient().delete_run(run_id)
    with pytest.raises(TrackingError, match=r"MLflow did not take the report \(") as caught:
        internal.log()
    assert internal.data.report["title"] not in str(caught.value)


def test_a_report_that_was_read_back_names_no_run_to_log_to(report: PrivacyReport) -> None:
    report.save("report.json")
    with pytest.raises(InputError, match="names no run"):
        PrivacyReport.read("report.json").log()


def test_a_notebook_shows_verdict_and_checks_alone(report: PrivacyReport) -> None:
    cell = report._repr_html_()
    assert "review" in cell
    assert len(re.findall("<tr>", cell)) == 1 + len(report.data.checks)
    assert len(cell) < 5_000 < len(report.to_html())
    assert repr(report).startswith("<PrivacyReport: review; ")


def test_links_to_runs_need_an_address(report: PrivacyReport) -> None:
    assert "https://mlflow.example" in report.to_html(address="https://mlflow.example")
    assert "https://" not in report.to_html()
    with pytest.raises(InputError, match="must begin with http"):
        report.to_html(address="javascript:alert(1)")


@pytest.mark.parametrize(
    ("name", "said"), [("r.txt", r"must end in \.html or"), ("no/r.json", "folder does not exist")]
)
def test_a_place_that_cannot_be_written_is_refused(report: PrivacyReport, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        report.save(name)


def test_a_failed_write_leaves_the_earlier_file(report: PrivacyReport, monkeypatch: pytest.MonkeyPatch) -> None:
    report.save("report.json")
    before = Path("report.json").read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"report\.json: cannot be written \(No space left on device\)"):
        report.save("report.json")
    assert Path("report.json").read_bytes() == before
    assert not list(Path().glob(".report*"))


def test_a_failed_check_is_exit_code_1_and_says_what_to_do(run_id: str) -> None:
    failed = cfk(f"report --run {run_id} --preset k20", 1)
    assert re.search(r"^fail +k_min +\d+ +20", failed.stdout, re.M)
    assert "k_min: " in failed.stdout


def test_card_and_model_version(log: Callable[[], str]) -> None:
    run_id, client = log(), MlflowClient()
    client.create_registered_model("loans")
    client.create_model_version("loans", source="runs:/none/model", description="Our own words.")
    cfk(f"report --run {run_id} --log --card card.md --model loans/1", 3)
    card = Path("card.md").read_text(encoding="utf-8")
    text = str(client.get_model_version("loans", "1").description)
    assert f"artifact cfk/report.html of MLflow run {run_id}" in card
    assert text.startswith("Our own words.")
    assert "## Privacy report: review" in text
    assert max(len(card), len(text)) <= LONGEST


def test_on_paper_everything_is_open(run_id: str) -> None:
    cfk(f"report --run {run_id} -o screen.html", 3)
    cfk(f"report --run {run_id} -o paper.html --print", 3)
    screen, paper = (Path(f"{name}.html").read_text(encoding="utf-8") for name in ("screen", "paper"))
    assert "<details>" in screen
    assert "<details" in paper
    assert not re.search(r"<details(?![^>]*\bopen\b)", paper)


def test_comparing_files_and_runs(log: Callable[[], str]) -> None:
    run_id = log()
    PrivacyReport.of_runs(run_id).save("first.json")
    PrivacyReport.of_runs(run_id, preset="k20").log()
    assert "nothing that a report compares changed" in cfk("report --compare first.json first.json", 0).stdout
    worse = cfk(f"report --compare first.json {run_id} -o changes.md", 1).stdout
    assert "verdict: review → fail" in worse
    assert "check k_min: pass (" in worse
    assert "| check k\\_min | pass (" in Path("changes.md").read_text(encoding="utf-8")
    assert "check k_min: fail (" in cfk(f"report --compare {run_id} first.json", 3).stdout


def test_what_changed_since_the_previous_report_is_in_the_next(report: PrivacyReport, run_id: str) -> None:
    after = PrivacyReport.of_runs(run_id, preset="k20", previous=report)
    changes = after.data.changes or ()
    assert "check k_min" in {change["what"] for change in changes}
    assert after.compare(report) == tuple(changes)
    report.save("first.json")
    assert PrivacyReport.of_runs(run_id, previous="first.json").data.changes == ()


def test_the_form_is_written_once_and_is_valid(run_id: str) -> None:
    cfk("report --template inputs.yaml", 0)
    form = Path("inputs.yaml").read_bytes()
    assert "is there already" in cfk("report --template inputs.yaml", 2).output
    assert Path("inputs.yaml").read_bytes() == form
    cfk(f"report --run {run_id} --inputs inputs.yaml", 3)


WRONG = {
    "report": "give one of --run, --experiment, --compare, --template; got none",
    "report --run a --experiment b": "got --run and --experiment",
    "report --run nobody": "there is no run nobody",
    "report --experiment nobody": "there is no experiment 'nobody'",
    "report --run {run} -o r.txt": "r.txt: the name must end in",
    "report --run {run} -o r.json -o ./r.json": "two outputs have the same name",
    "report --run {run} -o no/r.json": "no/r.json: the folder does not exist",
    "report --run {run} --pdf r.html": "r.html: the name must end in .pdf",
    "report --run {run} --card r.html": "r.html: the name must end in .md",
    "report --run {run} --edition public": "edition must be internal or external",
    "report --run {run} --preset GDPR": "GDPR",
    "report --run {run} --inputs no.yaml": "no.yaml",
    "report --run {run} --previous no.json": "no.json: no such file",
    "report --run {run} --previous damaged.json": "damaged.json: the report is not valid JSON (line 1, column 1)",
    "report --run {run} --since yesterday": "since must be a day",
    "report --run {run} --since 2999-01-01": "choose another period",
    "report --run {run} --address ftp://x": "must begin with http:// or https://",
    "report --run {run} --model loans": "--model loans: give name and number",
    "report --run {run} --model loans/9": "no version 9 of a model 'loans'",
    "report --run {run} --tracking-uri http://127.0.0.1:9": "does not answer",
    "report --compare a.json": "requires 2 arguments",
    "report --compare no.json damaged.json": "no.json: no such file",
    "report --compare {run} {run}": "holds no report",
    "report --compare a.json b.json --log": "--log says nothing with --compare",
    "report --template t.yaml -o r.html": "--output says nothing with --template",
    "report --template t.txt": "t.txt: the name must end in .yaml or .yml",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_line(run_id: str, command: str) -> None:
    Path("damaged.json").write_text(f"{CANARY} is no JSON")
    result = cfk(command.format(run=run_id), 2)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("cfk: ")]
    assert WRONG[command] in line
    assert not list(Path().glob("r.*"))


def test_settings_are_checked_before_any_run_is_read() -> None:
    with pytest.raises(CFKError, match="edition must be internal or external"):
        PrivacyReport.of_runs("nobody", edition="both", tracking_uri="http://127.0.0.1:9")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_pdf_of_the_print_edition(run_id: str) -> None:
    cfk(f"report --run {run_id} --pdf report.pdf -o other.pdf", 3)
    assert all(Path(name).read_bytes().startswith(b"%PDF-") for name in ("report.pdf", "other.pdf"))


@pytest.mark.slow
def test_over_http_as_from_a_file(explanations: Explanations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tracking_server(tmp_path) as server:
        server.start()
        client = MlflowClient(server.url)
        runs = [explanations.log(experiment="tests", tracking_uri=server.url) for _ in range(2)]
        client.create_registered_model("loans")
        client.create_model_version("loans", source=f"runs:/{runs[0]}/model", run_id=runs[0])
        where = f"--tracking-uri {server.url}"
        said = cfk(f"report --experiment tests {where} --log --model loans/1 -o report.json", 3).stdout
        assert said.startswith("verdict: ")
        (own,) = client.search_runs([client.get_run(runs[0]).info.experiment_id], f"tags.`{VERDICT}` = 'review'")
        assert own.data.tags[SOURCES].split(",") == runs
        assert f"MLflow run {own.info.run_id}" in str(client.get_model_version("loans", "1").description)
        cfk(f"report --compare report.json {own.info.run_id} {where}", 0)
