"""Observation: log what protected explainers release, and count calls of unprotected ones.

MLflow's patches can observe but not protect: their return value is discarded, and anybody can
switch them off.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import mlflow
import wrapt
from mlflow.utils import autologging_utils
from mlflow.utils.autologging_utils import autologging_integration, get_autologging_config
from mlflow.utils.autologging_utils.safety import safe_patch

from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.hookspecs import RawMethod, is_protecting
from cfk_plugin.plugins import load_plugins
from cfk_plugin.records.logger import observe_when
from cfk_plugin.records.run import Value, client_of, write

INTEGRATION = "cfk"
CALLS, GIVEN_OUT = "cfk.unprotected_calls", "cfk.unprotected"

_log = logging.getLogger("cfk_plugin")


@autologging_integration(INTEGRATION)  # type: ignore[no-untyped-call, untyped-decorator]
def autolog(
    *,
    disable: bool = False,  # noqa: ARG001 - read by MLflow, as are the others
    silent: bool = False,  # noqa: ARG001
    exclusive: bool = False,  # noqa: ARG001
) -> None:
    """Observe explainers in this process: log what is released, and count what leaves unprotected.

    What protected explainers release is logged as with ``protect(..., track=True)``. Direct calls
    of explainers from libraries that an adapter knows (DiCE, NICE) are counted on the active run:
    ``cfk.unprotected_calls``, and ``cfk.unprotected``, the counterfactuals that they gave out. No
    value is logged.

    It does not protect: the counterfactuals of an unprotected explainer pass unchanged. It sees no
    functions, no other libraries and no other processes, so a count of 0 does not prove that
    nothing left.

    Parameters
    ----------
    disable : bool
        Stop observing.
    silent : bool
        Say nothing in the log, as for MLflow's other integrations.
    exclusive : bool
        Do not log to runs that the user has started.
    """
    observe_when(_is_on)
    methods = load_plugins().raw_methods()
    for module in sorted({method.module for method in methods}):
        _watch(module, [method for method in methods if method.module == module])


_awaited: dict[str, Sequence[RawMethod]] = {}


def _watch(module: str, methods: Sequence[RawMethod]) -> None:
    """Patch the classes of a module now, or as soon as somebody imports it."""
    if module in sys.modules:
        _patch(methods)
    elif module not in _awaited:
        wrapt.register_post_import_hook(lambda _: _patch(_awaited[module]), module)
    _awaited[module] = methods


def _patch(methods: Sequence[RawMethod]) -> None:
    for method in methods if not _setting("disable") else ():
        owner = getattr(sys.modules[method.module], method.owner, None)
        # another version of the library may define it elsewhere
        if method.name in vars(owner or object):
            safe_patch(INTEGRATION, owner, method.name, _counted(method))  # type: ignore[no-untyped-call]


def _counted(method: RawMethod) -> Callable[..., Any]:
    def patch(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        given = 0
        try:
            result = original(self, *args, **kwargs)
            given = _number(method, result)
        finally:
            if not is_protecting():
                _note(given)
        return result

    return patch


def _number(method: RawMethod, result: Any) -> int:
    """Return how many counterfactuals a result holds; 0 where the adapter cannot tell, as in
    another version.
    """
    try:
        with quiet("{}", CFKError):
            return method.count(result)
    except CFKError as failure:  # its text is the class of what was raised
        _warn("counterfactuals of %s could not be counted (%s)", method.owner, failure)
        return 0


def _is_on() -> bool:
    """Say whether releases are to be logged now; MLflow makes the same check before it runs a
    patch.
    """
    if _setting("disable") or autologging_utils._AUTOLOGGING_GLOBALLY_DISABLED:
        return False
    return not (_setting("exclusive") and mlflow.active_run())


_counts: dict[str, list[int]] = {}
_lock = threading.Lock()


def _note(given: int) -> None:
    """Add one call to the active run.

    Never raises: the caller is waiting for counterfactuals, or for an exception.
    """
    try:
        with quiet("{}", CFKError):
            run = mlflow.active_run()
            if run is not None:
                _log_counts(str(run.info.run_id), given)
    except CFKError as failure:
        _warn("a call of an unprotected explainer was not logged (%s)", failure)


def _log_counts(run_id: str, given: int) -> None:
    client = client_of(None)
    with _lock:
        if run_id not in _counts:  # another process may have counted before
            before = client.get_run(run_id).data.metrics
            _counts[run_id] = [int(before.get(name, 0)) for name in (CALLS, GIVEN_OUT)]
        counts = _counts[run_id] = [_counts[run_id][0] + 1, _counts[run_id][1] + given]
    write(
        client,
        run_id,
        metrics=[Value(CALLS, counts[0], counts[0]), Value(GIVEN_OUT, counts[1], counts[0])],
    )


def _warn(text: str, *args: object) -> None:
    if not _setting("silent"):
        _log.warning(text, *args)


def _setting(name: str) -> bool:
    return bool(get_autologging_config(INTEGRATION, name))  # type: ignore[no-untyped-call]
