"""Tokens: 64 bits per value that stand for it in keyed digests, and follow from the value, not from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin import keyed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.domain import Domain

BOOL_SPELLINGS = {"True": ("True", "true", "1", "1.0"), "False": ("False", "false", "0", "0.0")}


def token_of(text: str, *, is_bool: bool) -> int:
    """Return what stands for a category: the same for all its spellings."""
    if is_bool:
        text = next((name for name, aliases in BOOL_SPELLINGS.items() if text in aliases), text)
    whole = text.removesuffix(".0")
    return keyed.token(whole if whole.lstrip("-").isdigit() else text)


def tokens_of(domain: Domain, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the tokens of coded values (`Domain.encode`).

    Numbers that went through single precision, and other spellings of a category, are the same; missing is a value of
    its own.
    """
    known = (codes >= 0) & (codes < len(domain.values))
    if domain.attribute.kind != "numeric":
        unlisted = np.nan_to_num(numbers).astype(np.uint64)
        return np.where(known, np.append(domain.tokens, np.uint64(0))[np.where(known, codes, -1)], unlisted)
    if len(domain.values):
        numbers = np.where(known, domain.values[np.where(known, codes, 0)], numbers)
    if not domain.is_date:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    return np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)
