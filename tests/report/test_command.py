"""A report is saved, logged to MLflow, and made by ``cfk report``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import Result
from mlflow import MlflowClient
from typer.testing import CliRunner

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError, TrackingError
from parsed import Tree

CANARY = "canary-7f3a"
VERDICT, SOURCES = "cfk.report.verdict", "cfk.report"


@pytest.fixture(scope="module")
def run_id(store: str) -> str:
    """Return a run that no test writes to."""
    return reported.run()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cfk(command: str, code: int) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def test_a_report_is_saved_by_its_suffix(run_id: str) -> None:
    report = PrivacyReport.of_runs(run_id)
    for suffix, text in {".html": report.to_html(), ".json": report.to_json()}.items():
        report.save(f"report{suffix}")
        assert Path(f"report{suffix}").read_bytes().decode() == text
    for name, message in (("r.md", r"must end in \.html"), ("no/r.json", "folder does not exist")):
        with pytest.raises(InputError, match=message):
            report.save(name)


def test_a_failed_write_leaves_the_earlier_file(
    run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = PrivacyReport.of_runs(run_id)
    report.save("report.json")
    before = Path("report.json").read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        report.save("report.json")
    assert Path("report.json").read_bytes() == before


def test_the_command_in_a_report_makes_it_again(run_id: str) -> None:
    report = PrivacyReport.of_runs(run_id)
    command = report.data.report["command"]
    assert command == f"cfk report --run {run_id}"
    lines = cfk(f"{command.removeprefix('cfk ')} -o a.html -o a.json", 3).stdout.splitlines()
    assert Path("a.json").read_text(encoding="utf-8") == report.to_json()
    assert Path("a.html").read_text(encoding="utf-8") == report.to_html()
    assert lines[0] == "verdict: review"
    first = next(place for place, line in enumerate(lines) if line.startswith("status "))
    for line, check in zip(lines[first + 1 :], report.data.checks, strict=False):
        assert line.startswith(check.status.replace("_", " "))
        assert check.id in line.split()


def test_the_command_line_says_what_the_page_says(run_id: str) -> None:
    output = cfk(f"report --run {run_id} -o a.html", 3).stdout
    page = Tree(Path("a.html").read_text(encoding="utf-8")).root.all("header")[0]
    texts = {str(each.attributes.get("class")): each.text for each in page.walk()}
    lines = output.splitlines()
    assert lines[1:3] == [texts["reason"], texts["for-a-pass"]]
    for tile in page.all("dl")[0].all("div"):
        assert f"{tile.all('dt')[0].text}: {tile.all('dd')[0].text}" in lines
    for code in page.all("code"):
        assert " ".join(code.text.split()) in " ".join(output.split())


def test_a_failed_check_is_exit_code_1_and_says_what_to_do(run_id: str) -> None:
    Path("inputs.json").write_text('{"thresholds": {"k": 20}}')
    failed = cfk(f"report --run {run_id} --inputs inputs.json", 1)
    assert re.search(r"^fail +k_min +\d+ +20", failed.stdout, re.M)
    assert "k_min: " in failed.stdout


WRONG = {
    "report": "give one of --run, --experiment",
    "report --run a --experiment b": "give one of --run, --experiment",
    "report --run nobody": "there is no run nobody",
    "report --experiment nobody": "there is no experiment 'nobody'",
    "report --run {run} -o r.txt": "r.txt: the name must end in",
    "report --run {run} -o r.json -o ./r.json": "two outputs have the same name",
    "report --run {run} -o no/r.json": "no/r.json: the folder does not exist",
    "report --run {run} --inputs no.json": "no.json: cannot be read",
    "report --run {run} --inputs damaged.json": "damaged.json: not valid JSON",
    "report --run {run} --since yesterday": "since must be a day",
    "report --run {run} --since 2999-01-01": "choose another period",
    "report --run {run} --tracking-uri http://127.0.0.1:9": "does not answer",
    "report --run nobody --tracking-uri sqlite:///none.db": "there is no MLflow store none.db",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_line(run_id: str, command: str) -> None:
    Path("damaged.json").write_text(f"{CANARY} is no JSON")
    result = cfk(command.format(run=run_id), 2)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("cfk: ")]
    assert WRONG[command] in line
    assert {path.name for path in Path().iterdir()} == {"damaged.json"}  # no file, and no store


# --- runs of MLflow ---


def logged(run_id: str, name: str) -> str:
    path = MlflowClient().download_artifacts(run_id, f"cfk/{name}", ".")
    return Path(path).read_text(encoding="utf-8")


def test_a_report_of_one_run_is_logged_to_it(store: str) -> None:
    run_id = reported.run()
    report = PrivacyReport.of_runs(run_id)
    assert report.log() == run_id
    assert logged(run_id, "report.json") == report.to_json()
    assert logged(run_id, "report.html") == report.to_html()
    assert MlflowClient().get_run(run_id).data.tags[VERDICT] == "review"
    assert PrivacyReport.of_runs(run_id).to_json() == report.to_json()  # not made from itself


def test_a_report_of_several_runs_is_logged_to_a_new_run(store: str) -> None:
    run_ids = [reported.run(), reported.run()]
    report = PrivacyReport.of_runs(run_ids)
    new_id = report.log()
    new = MlflowClient().get_run(new_id)
    assert new_id not in run_ids
    assert new.info.status == "FINISHED"
    assert new.info.experiment_id == MlflowClient().get_run(run_ids[0]).info.experiment_id
    assert (new.data.tags[SOURCES], new.data.tags[VERDICT]) == ("2", "review")
    assert logged(new_id, "report.json") == report.to_json()
    assert PrivacyReport.of_experiment("tests").run_ids.count(new_id) == 0


def test_a_report_that_cannot_be_logged_says_why(store: str) -> None:
    run_id = reported.run()
    report = PrivacyReport.of_runs(run_id)
    report.save("report.json")
    with pytest.raises(InputError, match="names no run"):
        PrivacyReport.read("report.json").log()
    MlflowClient().delete_run(run_id)
    with pytest.raises(TrackingError, match=r"MLflow did not take the report \(") as caught:
        report.log()
    assert report.data.report["title"] not in str(caught.value)
