"""Fixtures of the frozen records."""

from __future__ import annotations

from local_spark import spark, spark_console  # noqa: F401 - fixtures
