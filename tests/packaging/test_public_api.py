"""What is public is listed, and changes only on purpose."""

from __future__ import annotations

import warnings

import public_api


def test_what_is_public_is_as_listed() -> None:
    with warnings.catch_warnings(action="ignore"):
        found = list(public_api.lines(public_api.listed_members()))
    listed = public_api.LIST.read_text(encoding="utf-8").splitlines()
    assert found == listed, "if this is meant: python tests/packaging/public_api.py"
