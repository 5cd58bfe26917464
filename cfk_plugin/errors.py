"""Errors and warnings, and helpers that every module uses: calling foreign code, loading optional
libraries, writing files, and the base class of objects that contain rows.

No message contains a value of a row.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np

T = TypeVar("T")


class CFKError(Exception):
    """Base of every error that `cfk_plugin` raises on purpose."""


class SchemaError(CFKError, ValueError):
    """The schema contradicts itself or does not fit the table."""


class PolicyError(CFKError, ValueError):
    """A setting of a privacy policy is unknown or out of range, or contradicts another one."""


class PopulationError(CFKError, ValueError):
    """The training table cannot serve as a population."""


class InputError(CFKError, ValueError):
    """A table of counterfactuals or queries has the wrong shape or columns."""


class ModelError(CFKError, RuntimeError):
    """The model failed, or did not return one label per row."""


class AdapterError(CFKError, TypeError):
    """No adapter knows the explainer, or the explainer's result cannot be read."""


class NotForwardedError(AdapterError, AttributeError):
    """The adapter does not pass on this attribute of the explainer, because it may lead to rows."""


class PluginError(CFKError, RuntimeError):
    """A plugin could not be loaded or broke its contract."""


class TrackingError(CFKError, RuntimeError):
    """A run could not be logged or read; explanations that a call has returned stay valid."""


class BudgetError(CFKError, ValueError):
    """A privacy budget is too small for the request, or cannot be stored; nothing was spent."""


class BundleError(CFKError, ValueError):
    """The file of a catalogue is missing, has been changed, or needs another key."""


class MissingDependencyError(CFKError, ImportError):
    """An optional library is needed but not installed."""


class LookupGuaranteeWarning(UserWarning):
    """With the lookup guarantee, an attacker who reruns the algorithm may narrow a region to fewer
    than k people.
    """


class IgnoredOptionWarning(UserWarning):
    """The call has an option for the explainer's search, but the catalogue answers without it."""


class UntrackedWarning(UserWarning):
    """MLflow did not accept a record of explanations: the record is in the journal, or lost."""


class PersonalColumnWarning(UserWarning):
    """An explanation asks a person to change a column such as sex or age, and the schema does not
    say whether it can change.
    """


class MisreadColumnWarning(UserWarning):
    """A column was probably read as the wrong type, such as numbers that are text."""


class CopiedRowsWarning(UserWarning):
    """Most rows have exact copies, and the schema has no `subject` that says whose they are."""


class WideRegionsWarning(UserWarning):
    """There are so many quasi-identifiers that the regions are too wide to be useful."""


class PrivacyLeakWarning(UserWarning):
    """A differentially private release treats a value as public that was learned from the
    protected rows, such as the range of a column.
    """


_WARNINGS_OF_THE_FIT = (
    LookupGuaranteeWarning,
    PrivacyLeakWarning,
    MisreadColumnWarning,
    CopiedRowsWarning,
    WideRegionsWarning,
)


def _is_not_of_fit(record: logging.LogRecord) -> bool:
    return record.module != "entries"  # the module whose log lines are about the fit


@contextmanager
def refitting() -> Iterator[None]:
    """Silence the warnings of a fit that only measures another fit, which has warned already."""
    log = logging.getLogger("cfk_plugin")
    log.addFilter(_is_not_of_fit)
    token = _is_refitting.set(True)
    try:
        with warnings.catch_warnings():
            for kind in _WARNINGS_OF_THE_FIT:
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        _is_refitting.reset(token)
        log.removeFilter(_is_not_of_fit)


def is_refitting() -> bool:
    """Return True inside `refitting`."""
    return _is_refitting.get()


_is_refitting: ContextVar[bool] = ContextVar("cfk_is_refitting", default=False)
_is_serving: ContextVar[bool] = ContextVar("cfk_is_serving", default=False)


@contextmanager
def serving() -> Iterator[None]:
    """Make `warn` write to the log while a server answers a request."""
    token = _is_serving.set(True)
    try:
        yield
    finally:
        _is_serving.reset(token)


def warn(text: str, kind: type[Warning]) -> None:
    """Issue a Python warning at the caller's line outside this package; in a server, log it."""
    if _is_serving.get():
        logging.getLogger("cfk_plugin").warning("%s", text)
        return
    stacklevel = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cfk_plugin."):
        stacklevel += 1
        frame = frame.f_back
    warnings.warn(text, kind, stacklevel=stacklevel)


def require(
    name: str, value: object, kind: type[T], instead: str, error: type[CFKError] = InputError
) -> T:
    """Return the value if it is an instance of `kind`; otherwise raise `error`.

    The message ends with `instead`, which tells the caller what to do.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise error(
            f"{name} must be {article} {kind.__name__}, got {type(value).__name__}; {instead}"
        )
    return value


_MAX_LISTED = 10


def shown(value: object) -> str:
    """Return the `repr` of a caller's value, with a NumPy scalar as a plain Python value."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def listed(names: Sequence[Any]) -> str:
    """Return the first ten names, separated by commas, and the number of the others."""
    text = ", ".join(map(shown, names[:_MAX_LISTED]))
    if len(names) > _MAX_LISTED:
        text += f" and {len(names) - _MAX_LISTED} more"
    return text


def close_names(names: Iterable[object], choices: Iterable[object]) -> list[str]:
    """Return the choices that are close to one of the names, ignoring case.

    Pass only names, never values of rows: the result goes into messages.
    """
    name_of_spelling = {name.casefold(): str(name) for name in choices if isinstance(name, str)}
    close: list[str] = []
    for name in names:
        matches = get_close_matches(str(name).casefold(), name_of_spelling, n=1)
        close.extend(name_of_spelling[match] for match in matches)
    return list(dict.fromkeys(close))


def did_you_mean(names: Iterable[object], choices: Iterable[object]) -> str:
    """Return the end of a message about unknown names, or an empty string if no choice is close.

    >>> did_you_mean(["citty"], ["age", "city"])
    "; did you mean 'city'?"
    """
    close = close_names(names, choices)
    if not close:
        return ""
    return f"; did you mean {listed(close)}?"


def rename_hint(missing: Sequence[str], columns: Iterable[object], features: Sequence[str]) -> str:
    """Return a hint for a message if a column that is not a feature is nearly named like a missing
    feature.

    The hint does not quote the column: in a transposed table, column names are values.
    """
    others = [name for name in columns if name not in features]
    if not close_names(missing, others):
        return ""
    return " (the table has a column with nearly this name: rename it)"


def kinds_of(classes: Sequence[Any]) -> str:
    """Describe a model's classes for a message: their type, their names and how to write one.

    The type matters: 1 is not ``'1'``.
    """
    kind_of_type = {"bool": "booleans", "str": "text", "str_": "text"}
    kinds = {kind_of_type.get(type(label).__name__, "numbers") for label in classes}
    names = nameable(classes)
    list_of_names = f" ({listed(names)})" if len(names) else ""
    return f"{' and '.join(sorted(kinds))}{list_of_names}; give one of them, with its type"


_MANY = 20  # more outcomes than this are hardly labels


def nameable(classes: Sequence[Any]) -> Sequence[Any]:
    """Return a model's classes for a message, or an empty list if there are more than twenty."""
    if len(classes) > _MANY:
        return []
    return classes


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 record", "2 records"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shows_errors() -> bool:
    """Return True if ``CFK_DEBUG`` is set, so that commands show tracebacks."""
    return bool(os.environ.get("CFK_DEBUG"))


@contextmanager
def quiet(
    message: str | Callable[[], str],
    error: type[Exception],
    let: type[CFKError] | tuple[type[CFKError], ...] = (),
    *,
    is_public: bool = False,
) -> Iterator[None]:
    """Run the body, which calls foreign code, and replace its exception with our own `error`.

    Explainers, models, adapters, plugins, files and databases are foreign. Every exception but
    ``KeyboardInterrupt`` is replaced, also ``SystemExit`` and the panics of libraries written in
    Rust.

    The error has the `message`, with the class of the exception in place of ``{}`` or at the end.
    It never contains the exception's own text, which may quote rows, because our messages reach
    logs, runs and responses. If `message` is callable, it is called after a failure and returns the
    message. Errors of a type in `let` are not replaced.

    The original exception is the ``__cause__`` of the error. Set `is_public` to drop it where the
    traceback leaves the process, as in a server or on a cluster.

    >>> with quiet("the model raised {}", ModelError):
    ...     raise SystemExit("age=24")
    Traceback (most recent call last):
    cfk_plugin.errors.ModelError: the model raised SystemExit
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except let as failure:
        if is_public:
            raise failure from None
        raise
    except BaseException as failure:  # noqa: BLE001 - see the docstring
        text = message if isinstance(message, str) else message()
        # contextlib would take a RuntimeError that a StopIteration caused for its own, and drop it.
        is_hidden = is_public or isinstance(failure, StopIteration)
        cause = None if is_hidden else failure
        raise error(_with_failure(text, class_name(failure))) from cause


def class_name(raised: BaseException) -> str:
    """Return the name of an exception's class.

    A name that is not an identifier could quote a row, and becomes "an error".
    """
    name = type(raised).__name__
    return name if name.isidentifier() else "an error"


def _with_failure(message: str, failure: str) -> str:
    """Put the name of an exception's class into a message, in place of ``{}`` or at the end."""
    return message.replace("{}", failure) if "{}" in message else f"{message} ({failure})"


def load_extra(module: str, extra: str, need: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    module : str
        For example ``"opendp.prelude"``.
    extra : str
        The extra of this package that installs the library, for example ``"dp"``.
    need : str
        The start of the message, for example "differential privacy needs OpenDP".

    Returns
    -------
    module

    Raises
    ------
    MissingDependencyError
        If the module cannot be imported; the message says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{need}: {install_line(extra)}") from error


def check_extra(module: str, extra: str, need: str) -> None:
    """Raise `MissingDependencyError` if a top-level module is not installed; do not import it."""
    if find_spec(module) is None:
        raise MissingDependencyError(f"{need}: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Return the command that installs an extra of this package."""
    return f'pip install "cfk-plugin[{extra}]"'


def check_place(path: Path, endings: Sequence[str], title: str = "name") -> None:
    """Raise `InputError` if a path has another ending, or its folder does not exist.

    `title` is the name of the file's content in the message, such as "report".
    """
    if path.suffix.lower() not in endings:
        *first, last = endings
        raise InputError(
            f"{path}: the {title} must end in {', '.join(first)}{' or ' if first else ''}{last}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder does not exist")
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; give the path of a file")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, and move the draft to `path` when the body succeeds.

    Readers of `path` see the earlier file or the complete new one, never half of it.
    """
    draft = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or type(error).__name__})"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


class HostOnly:
    """Base of objects that contain rows, values of rows or a key.

    Their `repr` shows only counts, and they cannot be pickled. A dataclass that derives from it
    must set ``repr=False``; a test checks that.
    """

    __slots__ = ()

    def _counts(self) -> str:
        """Return the text in the brackets of the `repr`."""
        return f"{len(self)} rows" if isinstance(self, Sized) else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._counts()})"

    def __reduce__(self) -> NoReturn:
        """Raise `InputError`: a pickle would contain rows or a key."""
        raise InputError(
            f"{type(self).__name__} stays in the data holder's process and refuses to be pickled;"
            " save the released explanations instead"
        )
