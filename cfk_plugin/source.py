"""What an adapter hands over, under the name that plugin authors import it by; see
`cfk_plugin.hookspecs`.
"""

from cfk_plugin.data.model import predict_of
from cfk_plugin.data.policy import DesiredRange, DesiredSet, desired_as
from cfk_plugin.hookspecs import (
    DESIRED,
    CounterfactualBatch,
    CounterfactualSource,
    ExplainerError,
    NoneFoundError,
    RankingSource,
    ask,
    desired_of,
    is_protecting,
    places_of,
    protecting,
    released_cells,
    typed_cells,
)

__all__ = [
    "DESIRED",
    "CounterfactualBatch",
    "CounterfactualSource",
    "DesiredRange",
    "DesiredSet",
    "ExplainerError",
    "NoneFoundError",
    "RankingSource",
    "ask",
    "desired_as",
    "desired_of",
    "is_protecting",
    "places_of",
    "predict_of",
    "protecting",
    "released_cells",
    "typed_cells",
]
