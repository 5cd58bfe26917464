"""What is public is listed, and changes only on purpose."""

from __future__ import annotations

import warnings

import public_api


def test_public_interface_is_as_listed() -> None:
    """If a change is meant, run ``python tests/packaging/public_api.py``."""
    with warnings.catch_warnings(action="ignore"):
        assert list(public_api.lines()) == public_api.LIST.read_text("utf-8").splitlines()
