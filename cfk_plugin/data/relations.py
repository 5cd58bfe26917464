"""Relations between features: rules that every answer must obey.

A rule compares sums of numbers, or features with values, and may have a condition::

    years_employed <= age - 15
    if owns_home then rent == 0
    education in ["master", "doctorate"] or income <= 90000

A name with spaces or signs stands in backticks. Numbers may be added and subtracted, and multiplied
or divided by a constant. Dates count in days, and are compared with dates in quotes. ``and``,
``or`` and ``not`` join comparisons. If a row lacks a number or level of a rule, the rule does not
apply to it.

Python's parser reads a rule, and no part of it is executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.rounding import DAY
from cfk_plugin.data.values import zone_of
from cfk_plugin.errors import SchemaError, did_you_mean

if TYPE_CHECKING:
    from cfk_plugin.data.codes import Codes, Column, Floats, Mask

Test = Callable[["Floats"], "Mask"]
"""Takes rows, shape (n_rows, n_features), and returns a mask of shape (n_rows,)."""

Quantity = Callable[["Floats"], "Floats"]
"""Takes rows, shape (n_rows, n_features), and returns numbers of shape (n_rows,)."""

_CONDITIONAL = re.compile(r"\s*if\s+(.+?)\s+then\s+(.+)", re.DOTALL)
_QUOTED_NAME = re.compile(r"`([^`]+)`")
_SAME = 1e-9  # the difference up to which numbers are equal, absolute; 1e-12 relative
_FORM = 'write a rule such as "years_employed <= age - 15" or "if owns_home then rent == 0"'

_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_MIRRORED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "==", "!=": "!="}


@dataclass(frozen=True, eq=False, repr=False)
class Relation:
    """A rule as a test of encoded rows.

    Attributes
    ----------
    text : str
        The declared text.
    test : Test
    code_of_missing : mapping of position of a column to float
        The code of a missing number or level; a row with this code obeys the rule. It is NaN for
        categories, as a missing category is a category of its own.
    unknown : tuple of str
        Columns that the rule compares with a value that the table does not have.
    """

    text: str
    test: Test
    code_of_missing: Mapping[int, float]
    unknown: tuple[str, ...]

    @classmethod
    def read(cls, text: str, codes: Codes) -> Relation:
        """Read the text of a rule about rows that `codes` encodes.

        Raises
        ------
        SchemaError
            If a comparison does not suit the kind of its columns.
        """
        reader = _Reader(text, codes)
        tree = _tree(text)
        test = reader.test(tree)
        code_of_missing = {}
        for name in _names(tree):
            j = codes.names.index(name)
            column = codes.columns[j]
            code_of_missing[j] = column.code_of_missing if column.is_line else np.nan
        return cls(text, test, code_of_missing, tuple(reader.unknown))

    def is_obeyed(self, rows: Floats) -> Mask:
        """Return which rows, shape (n_rows, n_features), obey the rule; shape (n_rows,).

        A row without one of its numbers or levels obeys it.
        """
        is_obeyed = self.test(rows)
        for j, code_of_missing in self.code_of_missing.items():
            is_obeyed |= rows[:, j] == code_of_missing
        return is_obeyed


def checked(rules: Any, features: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of rules as a tuple, after checking their syntax and their features.

    Raises
    ------
    SchemaError
        If `rules` is not a list of texts, or a rule cannot be read or names an unknown feature.
    """
    if rules is None:
        return ()
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise SchemaError(f"rules must be a list of texts, got {type(rules).__name__}; {_FORM}")
    texts = tuple(rules)
    names = list(features)
    for text in texts:
        if not isinstance(text, str):
            raise SchemaError(f"a rule must be a text, got {type(text).__name__}; {_FORM}")
        rule_features = _names(_tree(text))
        unknown = [name for name in rule_features if name not in names]
        if unknown:
            raise SchemaError(
                f"rule {text!r}: {', '.join(unknown)} is not a feature; features are"
                f" {', '.join(names)}{did_you_mean(unknown, names)}"
            )
        if not rule_features:
            raise SchemaError(f"rule {text!r} names no feature; {_FORM}")
    return texts


def _tree(text: str) -> ast.expr:
    """Return the syntax tree of a rule; "if a then b" becomes "not a or b"."""
    name_of_word: dict[str, str] = {}

    def word(match: re.Match[str]) -> str:
        name = f"_quoted_{len(name_of_word)}"
        name_of_word[name] = match[1]
        return name

    source = _QUOTED_NAME.sub(word, text)
    conditional = _CONDITIONAL.fullmatch(source)
    sources = [source] if conditional is None else conditional.groups()
    try:
        trees = [ast.parse(part.strip(), mode="eval").body for part in sources]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SchemaError(f"rule {text!r} cannot be read; {_FORM}") from None
    for node in [node for tree in trees for node in ast.walk(tree)]:
        if isinstance(node, ast.Name):
            node.id = name_of_word.get(node.id, node.id)
    if conditional is None:
        return trees[0]
    return ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), trees[0]), trees[1]])


def _names(tree: ast.expr) -> list[str]:
    """Return the features that an expression names, each once."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(names))


class _Reader:
    """Translates the syntax tree of a rule to functions of rows.

    Attributes
    ----------
    unknown : list of str
        Columns that the rule compares with a value without a code.
    """

    def __init__(self, text: str, codes: Codes) -> None:
        self._text = text
        self._codes = codes
        self.unknown: list[str] = []

    def test(self, node: ast.expr) -> Test:
        """Return the test of a comparison, of joined comparisons, or of a true or false feature."""
        if isinstance(node, ast.BoolOp):
            tests = [self.test(part) for part in node.values]
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return lambda rows: join.reduce([test(rows) for test in tests])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test = self.test(node.operand)
            return lambda rows: ~test(rows)
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            tests = [
                self._comparison(operands[i], op, operands[i + 1]) for i, op in enumerate(node.ops)
            ]
            return lambda rows: np.logical_and.reduce([test(rows) for test in tests])
        if isinstance(node, ast.Name):
            return self._truth(node.id)
        raise self._unreadable(node)

    def _truth(self, name: str) -> Test:
        """Return the test of whether a feature is true, or whether a number differs from 0."""
        j, column = self._column(name)
        if column.kind == "number":
            return lambda rows: rows[:, j] != 0
        if {*column.values.tolist()} <= {True, False, None}:
            code_of_true = column.encode(pd.Series([True], dtype=object))  # NaN if no row has it
            return lambda rows: rows[:, j] == code_of_true
        raise SchemaError(
            f"rule {self._text!r}: {name} is not true or false; compare it with a value"
        )

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Test:
        """Return the test of one comparison."""
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(left, ast.Name):
                raise self._unreadable(left)
            test = self._compared_with_value(left.id, "==", self._listed(right))
            return test if isinstance(op, ast.In) else lambda rows: ~test(rows)
        if type(op) not in _COMPARISONS:
            raise self._unreadable(left)
        sign = _COMPARISONS[type(op)]
        match left, right:
            case ast.Name(name), _ if not (_names(right) or self._is_number(name)):
                return self._compared_with_value(name, sign, [self._constant(right)])
            case _, ast.Name(name) if not (_names(left) or self._is_number(name)):
                return self._compared_with_value(name, _MIRRORED[sign], [self._constant(left)])
        first = self._quantity(left)
        second = self._quantity(right)
        return lambda rows: _compared(first(rows), sign, second(rows))

    def _is_number(self, name: str) -> bool:
        """Return whether a feature has numbers; dates and levels are compared with their values."""
        return self._column(name)[1].kind == "number"

    def _listed(self, node: ast.expr) -> list[Any]:
        """Return the constants of a list."""
        if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            raise self._unreadable(node)
        return [self._constant(element) for element in node.elts]

    def _constant(self, node: ast.expr) -> Any:
        """Return the value of a literal, such as -5 or "master"."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self._unreadable(node) from None

    def _compared_with_value(self, name: str, sign: str, values: list[Any]) -> Test:
        """Return the test of whether the comparison is true for a feature and any of the values."""
        j, column = self._column(name)
        if sign not in ("==", "!=") and not column.is_line:
            raise SchemaError(
                f"rule {self._text!r}: {name} has no order, so {sign} means nothing; use ==, != or"
                " in, or list its levels in ordinal"
            )
        if column.is_line and None in values:
            raise SchemaError(
                f"rule {self._text!r}: the rule does not apply to a row without {name}; leave None"
                " out"
            )
        constants = column.encode(_on_clock_of(column, values))
        if np.isnan(constants).any():
            self.unknown.append(name)

        def test(rows: Floats) -> Mask:
            is_met: Mask = np.any(_compared(rows[:, [j]], sign, constants), axis=1)
            return is_met

        return test

    def _quantity(self, node: ast.expr) -> Quantity:
        """Return the function that calculates a linear expression; dates count in days."""
        if isinstance(node, ast.Constant) and _is_plain_number(node.value):
            constant = float(node.value)  # type: ignore[arg-type]
            return lambda rows: np.full(len(rows), constant)
        if isinstance(node, ast.Name):
            j, column = self._column(node.id)
            if not column.is_numeric:
                raise SchemaError(
                    f"rule {self._text!r}: {node.id} has no numbers; compare it with a value"
                )
            unit = DAY if column.kind == "date" else 1.0
            return lambda rows: rows[:, j] / unit
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self._quantity(node.operand)
            return lambda rows: -operand(rows)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            self._check_linear(node)
            return self._calculated(node)
        raise self._unreadable(node)

    def _calculated(self, node: ast.BinOp) -> Quantity:
        """Return a sum, a difference, or a number multiplied or divided by a constant."""
        first = self._quantity(node.left)
        second = self._quantity(node.right)
        calculate = _ARITHMETIC[type(node.op)]

        def quantity(rows: Floats) -> Floats:
            numbers: Floats = calculate(first(rows), second(rows))
            return numbers

        return quantity

    def _check_linear(self, node: ast.BinOp) -> None:
        """Raise if an expression multiplies or divides by a feature, or divides by 0."""
        is_left_constant = not _names(node.left)
        is_right_constant = not _names(node.right)
        is_linear = True
        if isinstance(node.op, ast.Mult):
            is_linear = is_left_constant or is_right_constant
        if isinstance(node.op, ast.Div):
            is_linear = is_right_constant and bool(self._quantity(node.right)(np.empty((1, 0)))[0])
        if not is_linear:
            raise SchemaError(
                f"rule {self._text!r}: a feature can only be multiplied or divided by a constant"
                " other than 0"
            )

    def _column(self, name: str) -> tuple[int, Column]:
        """Return the position of a feature and its column."""
        j = self._codes.names.index(name)
        return j, self._codes.columns[j]

    def _unreadable(self, node: ast.expr) -> SchemaError:
        """Return the error for a part of the rule that is not allowed there."""
        return SchemaError(
            f"rule {self._text!r}: {ast.unparse(node)!r} cannot stand there; {_FORM}"
        )


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _on_clock_of(column: Column, values: list[Any]) -> pd.Series:
    """Return values of a rule; dates without a time zone get the zone of the column."""
    series = pd.Series(values, dtype=object)
    zone = zone_of(column.dtype)
    if zone is None:
        return series
    dates = pd.to_datetime(series, errors="coerce")
    return dates if dates.dt.tz is not None else dates.dt.tz_localize(zone)


def _is_plain_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _compared(first: NDArray[Any], sign: str, second: NDArray[Any]) -> Mask:
    """Compare numbers with a sign such as "<="; numbers that differ only by rounding are equal."""
    tolerance = _SAME * (1 + np.maximum(np.abs(first), np.abs(second)) / 1000)
    difference = first - second
    is_same = np.abs(difference) <= tolerance
    comparison: Mask = {
        "<=": (difference <= 0) | is_same,
        "<": (difference < 0) & ~is_same,
        ">=": (difference >= 0) | is_same,
        ">": (difference > 0) & ~is_same,
        "==": is_same,
        "!=": ~is_same,
    }[sign]
    return comparison
