"""Heights of ROC curves."""

from __future__ import annotations

import pytest

from cfk_plugin.metrics.intervals import roc_height


def test_of_points_above_each_other_the_highest_counts() -> None:
    fpr, tpr = [0.0, 0.0, 0.2, 0.2, 1.0], [0.0, 0.1, 0.1, 0.6, 1.0]
    assert roc_height(fpr, tpr, [0.0, 0.1, 0.2, 0.6, 1.0]).tolist() == pytest.approx([0.1, 0.35, 0.6, 0.8, 1.0])
    assert float(roc_height([0.0, 1.0], [0.0, 1.0], 0.3)) == pytest.approx(0.3)
