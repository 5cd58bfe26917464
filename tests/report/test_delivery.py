"""A report in every form and place: saved, logged, and asked for by a command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner, Result

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError, TrackingError
from parsed import Tree
from tracking_server import tracking_server

CANARY = "canary-7f3a"
VERDICT, SOURCES = "cfk.report.verdict", "cfk.report"


@pytest.fixture(scope="module")
def run_id(store: str) -> str:
    """Return a run that no test writes to."""
    return reported.run()


@pytest.fixture
def report(run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyReport:
    monkeypatch.chdir(tmp_path)
    return PrivacyReport.of_runs(run_id)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cfk(command: str, code: int | None = None) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    if code is not None:
        assert result.exit_code == code, result.output
    return result


# --- files ---


def test_every_form_is_saved_by_its_suffix(report: PrivacyReport, tmp_path: Path) -> None:
    forms = {".html": report.to_html(), ".json": report.to_json(), ".md": report.to_markdown()}
    for suffix in forms:
        report.save(f"report{suffix}")
    assert {path.suffix: path.read_bytes().decode() for path in tmp_path.iterdir()} == forms
    for name, said in (("r.txt", r"must end in \.html,"), ("no/r.json", "folder does not exist")):
        with pytest.raises(InputError, match=said):
            report.save(name)


def test_a_failed_write_leaves_the_earlier_file(
    report: PrivacyReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.save("report.json")
    before = Path("report.json").read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        InputError, match=r"report\.json: cannot be written \(No space left on device\)"
    ):
        report.save("report.json")
    assert Path("report.json").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["report.json"]


def test_the_command_in_a_report_makes_it_again_byte_by_byte(
    report: PrivacyReport, run_id: str
) -> None:
    command = report.data.report["command"]
    assert command == f"cfk report --run {run_id} --edition internal"
    lines = cfk(f"{command.removeprefix('cfk ')} -o a.html -o a.json", 3).stdout.splitlines()
    assert Path("a.json").read_text(encoding="utf-8") == report.to_json()
    assert Path("a.html").read_text(encoding="utf-8") == report.to_html()
    assert PrivacyReport.read("a.json").to_html() == report.to_html()
    assert lines[0] == "verdict: review (internal edition)"
    first = next(at for at, line in enumerate(lines) if line.startswith("status "))
    for line, check in zip(lines[first + 1 :], report.data.checks, strict=False):
        assert line.startswith(check.status.replace("_", " "))
        assert check.id in line.split()
    cfk("report --template inputs.yaml", 0)
    inputs, earlier = Path("inputs.yaml").resolve(), Path("a.json").resolve()
    again = PrivacyReport.of_runs(
        run_id, until="2999-01-01", preset="paper", inputs=inputs, previous=earlier
    )
    assert again.data.report["command"] == (  # without folders
        f"cfk report --run {run_id} --until 2999-01-01 --edition internal --preset paper --inputs inputs.yaml "
        "--previous a.json"
    )


def test_the_command_line_says_what_the_page_says(report: PrivacyReport, run_id: str) -> None:
    said = cfk(f"report --run {run_id} -o a.html", 3).stdout
    html = Path("a.html").read_text(encoding="utf-8")
    page = Tree(html).root.all("header")[0]
    shown = {str(each.attributes.get("class")): each.text for each in page.walk()}
    lines = said.splitlines()
    assert lines[1:3] == [shown["reason"], shown["for-a-pass"]]
    for tile in page.all("dl")[0].all("div"):
        assert f"{tile.all('dt')[0].text}: {tile.all('dd')[0].text}" in lines
    for code in page.all("code"):
        assert " ".join(code.text.split()) in " ".join(said.split())
    for check in report.data.checks:  # the id leads from one to the other
        assert f"({check.id})" in Tree(html).root.text


def test_a_failed_check_is_exit_code_1_and_says_what_to_do(run_id: str, here: Path) -> None:
    failed = cfk(f"report --run {run_id} --preset k20", 1)
    assert re.search(r"^fail +k_min +\d+ +20", failed.stdout, re.M)
    assert "k_min: " in failed.stdout


def test_on_paper_everything_is_open_and_links_need_an_address(
    report: PrivacyReport, run_id: str
) -> None:
    cfk(f"report --run {run_id} -o screen.html --address https://mlflow.example", 3)
    report.save("paper.html", print_edition=True)
    screen, paper = (
        Path(f"{name}.html").read_text(encoding="utf-8") for name in ("screen", "paper")
    )
    assert "<details>" in screen
    assert not re.search(r"<details(?![^>]*\bopen\b)", paper)
    assert ("https://mlflow.example" in screen, "https://" in paper) == (True, False)
    with pytest.raises(InputError, match="must begin with http"):
        report.to_html(address="javascript:alert(1)")


def test_the_form_for_people_is_written_once_and_is_valid(run_id: str, here: Path) -> None:
    cfk("report --template inputs.yaml", 0)
    form = Path("inputs.yaml").read_bytes()
    assert "is there already" in cfk("report --template inputs.yaml", 2).output
    assert Path("inputs.yaml").read_bytes() == form
    cfk(f"report --run {run_id} --inputs inputs.yaml", 3)


WRONG = {
    "report": "give one of --run, --experiment, --template; got none",
    "report --run a --experiment b": "got --run and --experiment",
    "report --run nobody": "there is no run nobody",
    "report --experiment nobody": "there is no experiment 'nobody'",
    "report --run {run} -o r.txt": "r.txt: the name must end in",
    "report --run {run} -o r.json -o ./r.json": "two outputs have the same name",
    "report --run {run} -o no/r.json": "no/r.json: the folder does not exist",
    "report --run nobody --edition public --tracking-uri http://127.0.0.1:9": "edition must be internal or external",
    "report --run {run} --preset GDPR": "GDPR",
    "report --run {run} --inputs no.yaml": "no.yaml",
    "report --run {run} --previous no.json": "no.json: no such file",
    "report --run {run} --previous damaged.json": "damaged.json: the report is not valid JSON (line 1, column 1)",
    "report --run {run} --since yesterday": "since must be a day",
    "report --run {run} --since 2999-01-01": "choose another period",
    "report --run {run} --address ftp://x": "must begin with http:// or https://",
    "report --run {run} --tracking-uri http://127.0.0.1:9": "does not answer",
    "report --run nobody --tracking-uri sqlite:///none.db": "there is no MLflow store none.db",
    "report --experiment nobody --tracking-uri none": "there is no MLflow store none",
    "report --template t.yaml -o r.html": "--output says nothing with --template",
    "report --template t.txt": "t.txt: the name must end in .yaml or .yml",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_line(run_id: str, command: str, here: Path) -> None:
    Path("damaged.json").write_text(f"{CANARY} is no JSON")
    result = cfk(command.format(run=run_id), 2)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("cfk: ")]
    assert WRONG[command] in line
    assert {path.name for path in Path().iterdir()} == {"damaged.json"}  # no file, and no store


# --- runs of MLflow ---


def files(run_id: str) -> set[str]:
    return {Path(file.path).name for file in MlflowClient().list_artifacts(run_id, "cfk")}


def test_a_report_of_one_run_is_logged_beside_it_in_each_edition(here: Path, store: str) -> None:
    run_id = reported.run()
    report = PrivacyReport.of_runs(run_id)
    assert report.log() == run_id
    assert {"report.html", "report.json", "report.md"} <= files(run_id)
    assert MlflowClient().get_run(run_id).data.tags[VERDICT] == "review"
    assert PrivacyReport.read(run_id).to_json() == report.to_json()
    assert PrivacyReport.of_runs(run_id).to_json() == report.to_json()  # it is not made from itself
    external = PrivacyReport.of_runs(run_id, edition="external")
    external.log()
    assert "report-external.html" in files(run_id)
    assert PrivacyReport.read(run_id).data.report["edition"] == "internal"
    report.save("report.json")
    with pytest.raises(InputError, match="names no run"):
        PrivacyReport.read("report.json").log()
    MlflowClient().delete_run(run_id)
    with pytest.raises(TrackingError, match=r"MLflow did not take the report \(") as caught:
        report.log()
    assert report.data.report["title"] not in str(caught.value)


def test_a_report_of_several_runs_is_logged_to_a_run_of_its_own(store: str) -> None:
    runs = [reported.run(), reported.run()]
    report = PrivacyReport.of_runs(runs)
    own = report.log()
    found = MlflowClient().get_run(own)
    assert own not in runs
    assert (found.info.status, bool(found.info.end_time)) == ("FINISHED", True)
    assert found.info.experiment_id == MlflowClient().get_run(runs[0]).info.experiment_id
    assert (found.data.tags[SOURCES].split(","), found.data.tags[VERDICT]) == (
        sorted(runs),
        "review",
    )
    assert (
        PrivacyReport.read(own).to_json()
        == PrivacyReport.of_runs(runs).to_json()
        == report.to_json()
    )


# --- a server ---


@pytest.mark.slow
def test_over_http_as_from_a_file(here: Path, mlflow_store: str) -> None:
    from spooled import explanations

    with tracking_server(here) as server:
        server.start()
        client = MlflowClient(server.url)
        runs = [explanations().log(experiment="served", tracking_uri=server.url) for _ in range(2)]
        where = f"--tracking-uri {server.url}"
        result = cfk(f"report --experiment served {where} --log -o report.json")
        assert result.stdout.startswith("verdict: ")
        (own,) = client.search_runs(
            [client.get_run(runs[0]).info.experiment_id], f"tags.`{VERDICT}` LIKE '%'"
        )
        assert own.data.tags[SOURCES].split(",") == runs
        logged = PrivacyReport.read(own.info.run_id, tracking_uri=server.url)
        assert logged.to_json() == Path("report.json").read_text(encoding="utf-8")
