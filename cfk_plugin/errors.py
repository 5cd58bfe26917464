"""Errors, how foreign code is called and files are written, how libraries of extras are loaded, and
what holders of rows share.

No message holds values.
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
    """A privacy policy asks for something impossible or unknown."""


class PopulationError(CFKError, ValueError):
    """The training table cannot serve as a population."""


class InputError(CFKError, ValueError):
    """A table of counterfactuals or queries has the wrong shape or columns."""


class ModelError(CFKError, RuntimeError):
    """The model failed, or answered with something that is not one label per row."""


class AdapterError(CFKError, TypeError):
    """No adapter knows the explainer, or the explainer answered with something unreadable."""


class NotForwardedError(AdapterError, AttributeError):
    """An attribute of an explainer that its adapter does not pass on, as it may lead to rows."""


class PluginError(CFKError, RuntimeError):
    """A plugin could not be loaded or broke its contract."""


class TrackingError(CFKError, RuntimeError):
    """A run could not be logged, or not be read; the explanations themselves are not affected."""


class BudgetError(CFKError, ValueError):
    """A privacy budget does not allow what was asked for, or cannot be kept; nothing was spent."""


class BundleError(CFKError, ValueError):
    """The file of a catalogue is missing, was changed, or needs another key."""


class MissingDependencyError(CFKError, ImportError):
    """An optional library is needed and not installed."""


class LookupGuaranteeWarning(UserWarning):
    """With a lookup guarantee, somebody who reruns the algorithm may be left with fewer people."""


class IgnoredOptionWarning(UserWarning):
    """An option steers only an explainer that is not asked, as answers start at the query."""


class UntrackedWarning(UserWarning):
    """MLflow did not take a record of explanations; it is in the journal, or there is none."""


class PersonalColumnWarning(UserWarning):
    """An answer tells somebody to change who they are, such as their sex or age, and nothing says
    whether that can change.
    """


class MisreadColumnWarning(UserWarning):
    """A column is probably read in another way than it is meant."""


class CopiedRowsWarning(UserWarning):
    """Most rows have exact copies, and nothing says which rows are the same person's."""


class WideRegionsWarning(UserWarning):
    """There are so many quasi-identifiers that the regions of a catalogue say little."""


class PrivacyLeakWarning(UserWarning):
    """Something that a differentially private release treats as public was learned from protected
    rows.
    """


_WARNINGS_OF_THE_FIT = (
    LookupGuaranteeWarning,
    PrivacyLeakWarning,
    MisreadColumnWarning,
    CopiedRowsWarning,
    WideRegionsWarning,
)


def _is_of_result(record: logging.LogRecord) -> bool:
    return record.module != "entries"  # the module that a fit warns from


@contextmanager
def refitting() -> Iterator[None]:
    """Fit to measure, not to release: do not repeat the warnings of the fit that is being
    measured.
    """
    log = logging.getLogger("cfk_plugin")
    log.addFilter(_is_of_result)
    token = _is_refitting.set(True)
    try:
        with warnings.catch_warnings():
            for kind in _WARNINGS_OF_THE_FIT:
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        _is_refitting.reset(token)
        log.removeFilter(_is_of_result)


def is_refitting() -> bool:
    """Return True inside of `refitting`."""
    return _is_refitting.get()


_is_refitting: ContextVar[bool] = ContextVar("cfk_is_refitting", default=False)
_is_serving: ContextVar[bool] = ContextVar("cfk_is_serving", default=False)


@contextmanager
def serving() -> Iterator[None]:
    """Answer a request: what would be a warning of Python's is a line of the log."""
    token = _is_serving.set(True)
    try:
        yield
    finally:
        _is_serving.reset(token)


def warn(text: str, kind: type[Warning]) -> None:
    """Warn the caller outside of this package; in a server, write to the log instead."""
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
    """Return the value if it has this type; else say what was given, what is expected, and what to
    do instead.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise error(
            f"{name} must be {article} {kind.__name__}, got {type(value).__name__}; {instead}"
        )
    return value


_MAX_LISTED = 10


def shown(value: object) -> str:
    """Write a value of the caller as they would type it: a NumPy scalar as a plain value."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def listed(names: Sequence[Any]) -> str:
    """List the first of the names, and say how many more there are."""
    text = ", ".join(map(shown, names[:_MAX_LISTED]))
    if len(names) > _MAX_LISTED:
        text += f" and {len(names) - _MAX_LISTED} more"
    return text


def close_names(names: Iterable[object], known: Iterable[object]) -> list[str]:
    """Return the known names that some of the names are probably misspelt from; case aside.

    Only names may be given, never values of rows: the result goes into messages.
    """
    name_of_spelling = {name.casefold(): str(name) for name in known if isinstance(name, str)}
    close: list[str] = []
    for name in names:
        matches = get_close_matches(str(name).casefold(), name_of_spelling, n=1)
        close.extend(name_of_spelling[match] for match in matches)
    return list(dict.fromkeys(close))


def did_you_mean(names: Iterable[object], known: Iterable[object]) -> str:
    """Return the end of a message about unknown names; empty if no known name is close.

    >>> did_you_mean(["citty"], ["age", "city"])
    "; did you mean 'city'?"
    """
    close = close_names(names, known)
    if not close:
        return ""
    return f"; did you mean {listed(close)}?"


def rename_hint(missing: Sequence[str], columns: Iterable[object], features: Sequence[str]) -> str:
    """Return a hint if a column that is no feature has nearly the name of a missing one.

    It does not quote the column: in a table that was turned around, names of columns are values.
    """
    others = [name for name in columns if name not in features]
    if not close_names(missing, others):
        return ""
    return " (a column of nearly this name is there: rename it)"


def kinds_of(classes: Sequence[Any]) -> str:
    """Write a model's classes, of which kind they are, and what to give: 1 is not ``'1'``."""
    known = {"bool": "booleans", "str": "text", "str_": "text"}
    kinds = {known.get(type(label).__name__, "numbers") for label in classes}
    names = nameable(classes)
    shown = f" ({listed(names)})" if len(names) else ""
    return f"{' and '.join(sorted(kinds))}{shown}; give one of them, spelled and typed as it is"


_MANY = 20  # more outcomes than this are hardly labels, and are not listed


def nameable(classes: Sequence[Any]) -> Sequence[Any]:
    """Return a model's classes if messages may name them; none if there are too many."""
    if len(classes) > _MANY:
        return []
    return classes


def counted(number: int, noun: str) -> str:
    """Say how many there are: 1 record, 2 records."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shows_errors() -> bool:
    """Return True if the environment asks for errors in full: ``CFK_DEBUG=1``."""
    return bool(os.environ.get("CFK_DEBUG"))


@contextmanager
def quiet(
    what: str | Callable[[], str],
    error: type[Exception],
    let: type[CFKError] | tuple[type[CFKError], ...] = (),
    *,
    is_public: bool = False,
) -> Iterator[None]:
    """Call foreign code, and raise an error with a constant text if it fails.

    Explainers, models, adapters, plugins, files and databases are foreign. They need not raise an
    `Exception`: ``SystemExit`` and the panics of libraries written in Rust are not.

    The text is `what`, with the class of the failure in place of ``{}`` or at the end. It never
    quotes the text of the failure, which may quote rows, because our own texts reach logs, runs and
    responses. A callable `what` is called to write the text, only after a failure. An error of a
    type in `let` passes.

    The failure is the ``__cause__`` of the error, unless `is_public`: then the error leaves the
    process with its traceback, as in a response or on a cluster.

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
        text = what if isinstance(what, str) else what()
        # contextlib mistakes a RuntimeError for one of its own if a StopIteration is the cause.
        is_hidden = is_public or isinstance(failure, StopIteration)
        cause = None if is_hidden else failure
        raise error(_with_failure(text, class_name(failure))) from cause


def class_name(raised: BaseException) -> str:
    """Return the name of an exception's class; "an error" if it is no identifier, as it could then
    quote a row.
    """
    name = type(raised).__name__
    return name if name.isidentifier() else "an error"


def _with_failure(what: str, failure: str) -> str:
    """Put a failure into a message, in the place of ``{}`` or at its end."""
    return what.replace("{}", failure) if "{}" in what else f"{what} ({failure})"


def load_extra(module: str, extra: str, need: str) -> Any:
    """Import a module of a library that only an extra of this package installs.

    Parameters
    ----------
    module : str
        For example ``"opendp.prelude"``.
    extra : str
        The extra of `pyproject.toml` that installs it, for example ``"dp"``.
    need : str
        What needs which library, for example "differential privacy needs OpenDP".

    Returns
    -------
    module

    Raises
    ------
    MissingDependencyError
        If it cannot be imported; the text is one line that says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{need}: {install_line(extra)}") from error


def check_extra(module: str, extra: str, need: str) -> None:
    """Raise `MissingDependencyError`, as `load_extra` does, without importing the module.

    It has to be a top-level module: Python imports the packages above any other to find it.
    """
    if find_spec(module) is None:
        raise MissingDependencyError(f"{need}: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Return the command that installs an extra of this package."""
    return f'pip install "cfk-plugin[{extra}]"'


def check_place(path: Path, endings: Sequence[str], what: str = "name") -> None:
    """Refuse, before any work, a path that has another ending or cannot be written."""
    if path.suffix.lower() not in endings:
        *some, last = endings
        raise InputError(
            f"{path}: the {what} must end in {', '.join(some)}{' or ' if some else ''}{last}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a draft to write: readers of the file find the earlier version or the new one, never
    half of it.
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
    """Base of whatever holds rows, values of rows or a key: its `repr` shows counts alone, and it
    cannot be pickled.

    A dataclass that derives from it must say ``repr=False``; a test checks that.
    """

    __slots__ = ()

    def _counts(self) -> str:
        """Return what `repr` shows in its brackets."""
        return f"{len(self)} rows" if isinstance(self, Sized) else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._counts()})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: rows or a key would be in a file."""
        raise InputError(
            f"{type(self).__name__} stays in the data holder's process and refuses to be pickled;"
            " write what it releases instead"
        )
