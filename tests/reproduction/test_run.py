"""The whole experiment on a made table, as `make reproduction` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reproduced
from reproduction import run
from reproduction.measure import METHODS
from reproduction.results import Results


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the results of one made table."""
    pytest.importorskip("nice", reason="needs NICEx, which is installed apart")
    data = tmp_path_factory.mktemp("tables")
    reproduced.write_heart(data)
    folder = tmp_path_factory.mktemp("parent") / "reproduction"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproduction.prepare.N_TREES", 5)
        patch.setattr("reproduction.prepare.MOST_LEAVES", (10, None))
        options = ["--tables", "heart", "--limit", "6", "--output", str(folder)]
        run.main([str(data), *options])
    return folder


def test_every_method_is_measured_at_every_k(output: Path) -> None:
    results = Results.from_json((output / "results.json").read_text())
    assert {(a.table, a.method, a.k) for a in results.aggregates} == {
        ("heart", method, k) for method in METHODS for k in (5, 10, 20)
    }
    assert {a.n for a in results.aggregates} == {6}
    measured_effective = {a.method: a.k_effective_n for a in results.aggregates}
    assert measured_effective == dict.fromkeys(METHODS, 6) | {"grasp": 0}
    assert set(results.versions) == set(run.LIBRARIES)


def test_studies_are_about_their_tables(output: Path) -> None:
    studies = Results.from_json((output / "results.json").read_text()).studies
    assert {(row["method"], row["k"]) for row in studies["frontier"]} == {
        (method, k)
        for method in ("exact-ncp", "exact-pureness")
        for k in (2, 3, 5, 10, 15, 20, 30, 50)
    }
    assert {(row["method"], row["k"]) for row in studies["fairness"]} == {
        (method, k) for method in ("grasp", "exact-pureness") for k in (5, 10, 20)
    }
    assert studies["parameters"] == studies["plausibility"] == []  # these are about german


def test_page_and_figures_are_written(output: Path) -> None:
    page = (output / "index.md").read_text()
    figures = re.findall(r"\]\((figures/\w+\.svg)\)", page)
    assert len(figures) == 3
    for figure in figures:
        assert (output / figure).read_text().startswith("<?xml")


def test_no_comment_on_other_results_is_on_the_page(output: Path) -> None:
    assert "In short" not in (output / "index.md").read_text()


def test_the_page_links_the_tables_that_are_written(output: Path) -> None:
    linked = set(re.findall(r"\]\(tables/(\w+\.csv)\)", (output / "index.md").read_text()))
    assert linked == {path.name for path in (output / "tables").iterdir()}


def test_no_value_of_a_row_is_written(output: Path) -> None:
    tables = [f"tables/{path.name}" for path in (output / "tables").iterdir()]
    for name in ("results.json", "index.md", *tables):
        text = (output / name).read_text()
        assert "mild" not in text
        assert "strong" not in text


def test_an_unknown_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main([str(tmp_path), "--tables", "iris"])
    assert "invalid choice: 'iris'" in capsys.readouterr().err
