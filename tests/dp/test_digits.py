"""The benchmark on digits, which stand in for MNIST, at a size that shows that it runs and
flips.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import digits
import dpc
import pytest

# a network of few steps; domains that are read
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def case() -> dpc.Case:
    return dpc.case("digits", Path(), 20, 0)


@pytest.mark.parametrize("method", ["cadex", "revise", "dp-1"])
def test_digits_become_other_digits(case: dpc.Case, method: str) -> None:
    if method == "dp-1":
        pytest.importorskip("opendp", reason="needs the extra [dp]")
    ((name, explain),) = dpc.METHODS[method](case, options=Namespace(seed=0))
    assert dpc.measure(case, name, explain, 0.0).split(" | ")[2] == "1.000"


def test_a_picture_has_ten_images_in_a_row(case: dpc.Case, tmp_path: Path) -> None:
    means = case.train.groupby("outcome")[list(case.queries)].mean().to_numpy()
    digits.picture({"mean": means, "again": means}, tmp_path / "digits.svg")
    assert (tmp_path / "digits.svg").read_text(encoding="utf-8").count("<image") == 20
