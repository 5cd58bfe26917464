"""Warnings about columns that are probably not what they were read as.

`Schema.from_frame` reads text as categories. Numbers and days that a file holds as text are then
only compared for equality, and a label that was left in the table becomes a feature. Nothing
fails; the explanations are just bad. So the person who declares the table is warned.

The warnings name columns and quote no value. Whether there is one never depends on a single row: a
large share of a column's distinct values decides.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.values import is_numeric
from cfk_plugin.errors import MisreadColumnWarning

_FEWEST_ROWS = 20
_FEWEST_NUMBERS = 10  # distinct ones; fewer are as likely codes of categories
_SHARE = 0.95  # of distinct values, or of the rows with a label
_SHARE_OF_ODD = 0.01  # of distinct values such as V57 among numbers; more of them make codes of all
_MOST_WORDS = 5  # distinct texts such as "unknown" that stand among numbers
_MOST_LOOKED_AT = 1_000  # distinct values of a column

_SIGN = r"(?:[€$£¥]|EUR|USD|GBP)"
_DIGITS = r"(?:\d{1,3}(?:[,.' \u00a0\u202f]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?|\.\d+)"
_AMOUNT = re.compile(rf"[-+]?\s*{_SIGN}?\s*[-+]?{_DIGITS}\s*(?:{_SIGN}|%)?")
_PLAIN_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_WORD = re.compile(r"\D*")
_LEADING_ZERO = re.compile(r"0\d+")
_DAY = re.compile(r"\d{1,2}([/.-])\d{1,2}[/.-]\d{4}")
# A comma before three digits may also separate thousands, unless a single zero stands before it.
_DECIMAL_COMMA = re.compile(r"[^,]*,(?:\d{1,2}|\d{4,})\D*|\D*0?,\d+\D*")
_COMMA_OF_THOUSANDS = re.compile(r".*,\d{3}[,.].*")

_BETWEEN_WORDS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
_NAMES_OF_CODES = {
    "code",
    "codes",
    "id",
    "phone",
    "plz",
    "post",
    "postal",
    "postalcode",
    "postcode",
    "zip",
    "zipcode",
}
_NAMES_OF_LABELS = {
    "accepted",
    "approved",
    "churn",
    "churned",
    "class",
    "decision",
    "defaulted",
    "is_approved",
    "label",
    "labels",
    "outcome",
    "rejected",
    "survived",
    "target",
}


@dataclass(frozen=True, slots=True)
class Misreading:
    """A column that is probably not what it was read as."""

    column: str
    problem: str
    remedy: str  # in Python, where the table is called train
    remedy_in_file: str  # in the table's file or the schema file

    @property
    def warning(self) -> MisreadColumnWarning:
        """The warning to give."""
        return MisreadColumnWarning(
            f"{self.problem}; {self.remedy}", f"{self.problem}; {self.remedy_in_file}"
        )


def warn_of_misreadings(
    frame: pd.DataFrame, role_of_feature: Mapping[str, str], target: str | None
) -> None:
    """Warn once of each feature that is probably misread.

    Parameters
    ----------
    frame : DataFrame
        The rows that the schema was read from.
    role_of_feature : mapping of str to str
        Roles of the features, without the features whose kind the user has declared.
    target : str, optional
        The label column.
    """
    if len(frame) < _FEWEST_ROWS:
        return
    if target is None:
        other_features = [name for name, role in role_of_feature.items() if role == "other"]
        labels = [*_named_like_a_label(frame, other_features)]
    else:
        labels = [*_copies_of_label(frame, role_of_feature, target)]
    # How a label is written does not matter: it is no feature.
    columns_of_labels = {misreading.column for misreading in labels}
    features = [name for name in role_of_feature if name not in columns_of_labels]
    for misreading in (*misread_texts(frame, features), *labels):
        # The user's call of Schema.from_frame is two frames up.
        warnings.warn(misreading.warning, stacklevel=3)


def misread_texts(frame: pd.DataFrame, names: Iterable[str]) -> Iterator[Misreading]:
    """Yield the columns of text that hold numbers or days."""
    for name in names:
        values = _texts(frame[name])
        misreading = _days(name, values) or _numbers(name, values)
        if misreading is not None:
            yield misreading


def _texts(column: pd.Series) -> list[str]:
    """Return distinct values of a column of text as they are written; none of any other column."""
    is_text = types.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype)
    if not is_text or len(column) < _FEWEST_ROWS or is_numeric(column):
        return []
    values = column.dropna().unique()
    step = -(-len(values) // _MOST_LOOKED_AT)  # evenly from the whole column
    return [str(value) for value in values[:: max(step, 1)]]


def _days(name: str, values: list[str]) -> Misreading | None:
    """Return what is wrong with a column if nearly all of its distinct texts are days."""
    matches = [match for match in map(_DAY.fullmatch, values) if match is not None]
    if len(matches) < max(_FEWEST_NUMBERS, _SHARE * len(values)):
        return None
    days = [match[0] for match in matches]
    separator = matches[0][1]
    day_first = f"%d{separator}%m{separator}%Y"
    month_first = f"%m{separator}%d{separator}%Y"
    formats = [form for form in (day_first, month_first) if _reads_all(form, days)]
    in_file = "write the days in the file in the form YYYY-MM-DD"
    column = f"train[{name!r}]"
    if not formats:
        return Misreading(
            name,
            f"column {name!r} holds days as text in several ways, and is read as categories",
            f"write all days of {column} in the form YYYY-MM-DD",
            in_file,
        )
    options = f"format={' or '.join(map(repr, formats))}"
    if len(days) < len(values):
        options = f"{options}, errors='coerce'"  # what is no day becomes a missing value
    return Misreading(
        name,
        f"column {name!r} holds days as text that is not ISO, and is read as categories",
        f"write {column} = pd.to_datetime({column}, {options})",
        in_file,
    )


def _reads_all(form: str, days: list[str]) -> bool:
    """Return True if pandas reads all these texts in this format of days."""
    return bool(pd.to_datetime(pd.Series(days), format=form, errors="coerce").notna().all())


def _numbers(name: str, values: list[str]) -> Misreading | None:
    """Return what is wrong with a column if nearly all of its distinct texts are numbers.

    A few words such as "unknown" may stand among them. Numbers that look like codes are left as
    they are: categories.
    """
    amounts = [value for value in values if _is_amount(value)]
    non_amounts = [value for value in values if not _is_amount(value)]
    words = [value for value in non_amounts if _WORD.fullmatch(value)]
    n_odd = len(non_amounts) - len(words)
    if len(amounts) < _FEWEST_NUMBERS or len(words) > _MOST_WORDS:
        return None
    if n_odd > max(1, _SHARE_OF_ODD * len(values)):  # a single value must not decide
        return None
    if _are_codes(name, amounts):
        return None
    column = f"train[{name!r}]"
    text = column
    if _have_decimal_commas(amounts):
        text = f"{column}.str.replace(',', '.')"
        amounts = [value.replace(",", ".") for value in amounts]
    n_plain = sum(_PLAIN_NUMBER.fullmatch(value) is not None for value in amounts)
    if words:
        problem = f"column {name!r} holds numbers and a few words, and is read as categories"
        made_numeric = f"write {column} = pd.to_numeric({text}, errors='coerce')"
        in_file = "leave the cells with words empty in the file"
    else:
        problem = f"column {name!r} holds numbers stored as text, and is read as categories"
        made_numeric = f"write {column} = pd.to_numeric({text})"
        in_file = "write plain numbers in the file"
    if n_plain < _SHARE * len(amounts):
        signs = "signs of currency, % and separators of thousands"
        made_numeric = f"remove {signs}, then {made_numeric}"
        in_file = f"{in_file}, without {signs}"
    if text != column:
        in_file = f"{in_file}, with a decimal point instead of a comma"
    return Misreading(
        name,
        problem,
        f"{made_numeric}, or nominal=[{name!r}] if they are codes",
        f'{in_file}, or add the column to "nominal" in the schema if they are codes',
    )


def _have_decimal_commas(amounts: list[str]) -> bool:
    """Return True if the commas in these numbers are decimal, and do not separate thousands."""
    n_with_comma = sum("," in value for value in amounts)
    n_decimal = sum(_DECIMAL_COMMA.fullmatch(value) is not None for value in amounts)
    n_of_thousands = sum(_COMMA_OF_THOUSANDS.fullmatch(value) is not None for value in amounts)
    # A single value must not decide.
    is_decimal = n_decimal > max(1, (1 - _SHARE) * n_with_comma)
    return is_decimal and n_decimal > n_of_thousands


def _is_amount(value: str) -> bool:
    """Return True for a number, also with a sign of currency and separators of thousands."""
    return bool(_PLAIN_NUMBER.fullmatch(value) or _AMOUNT.fullmatch(value.strip()))


def _are_codes(name: str, amounts: list[str]) -> bool:
    """Return True for numbers that are more likely codes, such as those of places and phones."""
    words = {word.casefold() for word in _BETWEEN_WORDS.split(str(name))}
    if not words.isdisjoint(_NAMES_OF_CODES):
        return True
    n_with_zero = sum(_LEADING_ZERO.fullmatch(value) is not None for value in amounts)
    return n_with_zero > (1 - _SHARE) * len(amounts)


def _named_like_a_label(frame: pd.DataFrame, names: Iterable[str]) -> Iterator[Misreading]:
    """Yield the columns whose names look like that of a label."""
    spelled = {str(name).casefold() for name in frame.columns}
    for name in names:
        if _is_named_like_a_label(name, spelled):
            yield Misreading(
                name,
                f"column {name!r} is named like a label, and is read as a feature",
                f"write target={name!r} if it is the label of the model",
                f'write "target": "{name}" in the schema if it is the label of the model',
            )


def _copies_of_label(
    frame: pd.DataFrame, names: Iterable[str], target: str
) -> Iterator[Misreading]:
    """Yield the columns that hold the label in another coding."""
    labels = frame[target]
    label_of_row, distinct_labels = pd.factorize(labels)
    for name in names:
        column = frame[name]
        is_copy = _are_same_numbers(column, labels)
        if is_copy or _says_label(column, label_of_row, len(distinct_labels)):
            yield Misreading(
                name,
                f"column {name!r} is a copy or a recoding of the target {target!r}, and is read as"
                " a feature",
                f"leave it out with train.drop(columns={name!r})",
                "take the column out of the file",
            )


def _is_named_like_a_label(name: str, names: Collection[str]) -> bool:
    plain = str(name).strip().casefold()
    if plain == "y":
        return "x" not in names  # both are coordinates
    return plain in _NAMES_OF_LABELS


def _are_same_numbers(column: pd.Series, target: pd.Series) -> bool:
    """Return True if the target is numbers, and the column nearly always has the same one.

    The target's most frequent number is left out: two columns may both be zero nearly always.
    """
    if not _holds_numbers(column) or not _holds_numbers(target):
        return False
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    targets = target.to_numpy(dtype=np.float64, na_value=np.nan)
    present = targets[~np.isnan(targets)]
    if not len(present):
        return False
    distinct, counts = np.unique(present, return_counts=True)
    compared = ~np.isnan(targets) & (targets != distinct[counts.argmax()])
    n_same = int((numbers[compared] == targets[compared]).sum())
    return int(compared.sum()) >= _FEWEST_ROWS and n_same >= _SHARE * int(compared.sum())


def _holds_numbers(column: pd.Series) -> bool:
    dtype: Any = column.dtype
    return types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)


def _says_label(column: pd.Series, label_of_row: NDArray[np.int64], n_labels: int) -> bool:
    """Return True if nearly all rows of every label share a value that other labels do not have.

    Parameters
    ----------
    column : Series of n rows
    label_of_row : array of shape (n,)
        Number of each row's label; -1 where it is missing.
    n_labels : int
    """
    if not 2 <= n_labels <= len(column) // _FEWEST_ROWS:
        return False
    value_of_row, values = pd.factorize(column)
    is_known = (value_of_row >= 0) & (label_of_row >= 0)
    if not 2 <= len(values) <= len(column) // _FEWEST_ROWS or not is_known.any():
        return False
    # (n_labels, n_values)
    pairs = label_of_row[is_known] * len(values) + value_of_row[is_known]
    counts = np.bincount(pairs, minlength=n_labels * len(values)).reshape(n_labels, len(values))
    n_rows_of_label = np.bincount(label_of_row[label_of_row >= 0], minlength=n_labels)
    n_rows_of_value = counts.sum(axis=0)
    is_frequent = n_rows_of_label >= _FEWEST_ROWS
    partner = counts.argmax(axis=1)
    n_paired = counts.max(axis=1)
    is_paired = (n_paired >= _SHARE * n_rows_of_label) & (
        n_paired >= _SHARE * n_rows_of_value[partner]
    )
    n_frequent = int(is_frequent.sum())
    return n_frequent >= 2 and bool(is_paired[is_frequent].all())
