"""Fixtures of the tests of servers, observation and Spark."""

from __future__ import annotations

from local_spark import spark, spark_console  # noqa: F401 - fixtures
from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures
