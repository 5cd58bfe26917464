"""What an adapter hands over, under the name that plugin authors import it by; see
`cfk_plugin.hookspecs`.
"""

from cfk_plugin.data.model import predict_of
from cfk_plugin.data.policy import DesiredRange, DesiredSet, desired_as
from cfk_plugin.data.region import part_contains
from cfk_plugin.hookspecs import (
    DESIRED,
    AnsweringSource,
    AnswerRequest,
    CounterfactualBatch,
    CounterfactualSource,
    DependsOnRows,
    ExplainerError,
    NoneFoundError,
    ask,
    desired_of,
    places_of,
    released_cells,
    typed_cells,
)

__all__ = [
    "DESIRED",
    "AnswerRequest",
    "AnsweringSource",
    "CounterfactualBatch",
    "CounterfactualSource",
    "DependsOnRows",
    "DesiredRange",
    "DesiredSet",
    "ExplainerError",
    "NoneFoundError",
    "ask",
    "desired_as",
    "desired_of",
    "part_contains",
    "places_of",
    "predict_of",
    "released_cells",
    "typed_cells",
]
