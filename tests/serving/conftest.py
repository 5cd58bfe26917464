"""Fixtures of the tests of servers."""

from __future__ import annotations

from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures
