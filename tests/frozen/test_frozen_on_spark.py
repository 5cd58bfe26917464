"""What jobs on Spark release is as it was recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frozen_records import differences, file_of, read, write
from frozen_settings import of_spark

pytestmark = [pytest.mark.slow, pytest.mark.full_search]

RECORDS_ANEW = "CFK_TEST_RECORD_SPARK"


def test_releases_on_spark_are_as_recorded(spark: Any, tmp_path: Path) -> None:
    """Set CFK_TEST_RECORD_SPARK=1 to store what is released now."""
    recording = of_spark(spark, tmp_path)
    path = file_of("spark")
    if os.environ.get(RECORDS_ANEW):
        write(path, recording)
    messages = differences(read(path), recording)
    assert not messages, "\n".join(messages[:6])
