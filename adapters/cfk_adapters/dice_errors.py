"""DiCE's errors about how it is called, in sentences that hold no value of a row."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RANGE = "desired_range must hold two numbers, the lower one first"

_SENTENCES: Mapping[str, str] = {
    "The number of counterfactuals generated per query instance (total_CFs)": (
        "total_CFs must be at least 1"
    ),
    "Some features need to be varied": (
        "features_to_vary names no column; name at least one, or leave it out"
    ),
    "The posthoc_sparsity_algorithm should be": (
        'posthoc_sparsity_algorithm must be "linear" or "binary"'
    ),
    "The posthoc_sparsity_param should lie": (
        "posthoc_sparsity_param must be between 0 and 1, or None"
    ),
    "The stopping_threshold should lie": "stopping_threshold must be between 0 and 1",
    "The desired_range parameter should not be set": (
        "desired_range is for numbers, and this DiCE model is a classifier; name desired_class"
    ),
    "The desired_range parameter should be set": (
        "this DiCE model is a regressor; give desired_range=[low, high]"
    ),
    "The parameter desired_range needs": _RANGE,
    "The range provided in desired_range": _RANGE,
    "The number of counterfactuals requested per query instance": (
        "feature importances need total_CFs of at least 10"
    ),
    "The number of query instances should be": (
        "global_feature_importance needs at least 10 queries; local_feature_importance takes fewer"
    ),
    "kd-tree initialization is not supported": (
        'without training rows, the genetic search needs initialization="random"'
    ),
}
"""How the texts begin that DiCE writes about a call, and what is said instead."""

_CLASS = (
    "Desired class not present",
    "Only 0, 1 are supported as desired class",
    "The target class for",
    "Desired class should be within",
)
_OPPOSITE = ("Desired class cannot be opposite", "Desired class can't be opposite")


def sentence_for(
    error: Exception, explainer: Any, classes: Sequence[Any] | None, options: Mapping[str, Any]
) -> str | None:
    """Return what an error of DiCE says about the call; None for an error that is not known.

    DiCE's own text is compared and never repeated, as it may quote rows. The sentence is made of
    the names of options and columns, and of the model's classes.

    Parameters
    ----------
    error : Exception
    explainer : dice_ml ExplainerBase
    classes : sequence, optional
        Those of the model, in its order.
    options : mapping
        Arguments of the call by name.
    """
    interface = explainer.data_interface
    text = str(error)
    for beginning, sentence in _SENTENCES.items():
        if text.startswith(beginning):
            return sentence
    known = "its classes" if classes is None else listed(classes)
    if text.startswith(_CLASS):
        return f"desired_class must be one of {known}"
    if text.startswith(_OPPOSITE):
        return f'with more than two classes there is no "opposite"; name desired_class: {known}'
    if text.startswith("Got features"):
        return (
            "features_to_vary or permitted_range names a column that DiCE does not have; it has"
            f" {listed(interface.feature_names)}"
        )
    if text.startswith("The category"):
        return (
            "permitted_range lists a category that the training table does not have, in"
            f" {listed(_with_new_categories(interface, options))}"
        )
    if isinstance(error, TypeError) and "unexpected keyword argument" in text:
        unknown = _unknown_options(explainer, options)
        # Without one, the error is of another call, as of a method of the model.
        if unknown:
            return f"it has no option {listed(unknown)}"
    return _about_query(error, interface)


def _with_new_categories(interface: Any, options: Mapping[str, Any]) -> list[str]:
    """Return the columns for which permitted_range lists a category that is not in the table."""
    permitted = options.get("permitted_range") or {}
    columns = []
    for name in interface.categorical_feature_names:
        categories = permitted.get(name, ())
        if not set(categories) <= set(interface.permitted_range[name]):
            columns.append(name)
    return columns


def _unknown_options(explainer: Any, options: Mapping[str, Any]) -> list[str]:
    """Return the options of a call that neither the method nor the search has."""
    known: set[str] = set()
    for name in ("feature_importance", "generate_counterfactuals", "_generate_counterfactuals"):
        known.update(inspect.signature(getattr(explainer, name)).parameters)
    return [name for name in options if name not in known]


def _about_query(error: Exception, interface: Any) -> str | None:
    """Return what an error says about a column of the query.

    DiCE raises it with several arguments: a word, the name of the column, and what is wrong.
    """
    if len(error.args) != 3 or error.args[0] not in ("Feature", "Feature:"):
        return None
    _, name, fault = error.args
    if name not in interface.feature_names:
        return None
    if str(fault).startswith("has a value outside"):
        return f"a query has a category that the training table does not have, in {name!r}"
    if str(fault).startswith("is outside the permitted range"):
        return (
            f"a query is outside permitted_range in {name!r}, and features_to_vary does not allow"
            " to change it"
        )
    return None
