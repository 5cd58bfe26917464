"""What an adapter hands over, under the name that plugin authors import it by; see `cfk_plugin.hookspecs`."""

from cfk_plugin.hookspecs import (
    DESIRED,
    CounterfactualBatch,
    CounterfactualSource,
    DesiredRange,
    ExplainerError,
    NoneFoundError,
    RankingSource,
    ask,
    desired_of,
    is_protecting,
    protecting,
    released_cells,
    typed_cells,
)

__all__ = [
    "DESIRED",
    "CounterfactualBatch",
    "CounterfactualSource",
    "DesiredRange",
    "ExplainerError",
    "NoneFoundError",
    "RankingSource",
    "ask",
    "desired_of",
    "is_protecting",
    "protecting",
    "released_cells",
    "typed_cells",
]
