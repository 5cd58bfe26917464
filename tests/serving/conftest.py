"""Fixtures of the tests of servers."""

from __future__ import annotations
