"""How unlike the training rows a row is, as NICE's optimisation for plausibility wants to be told."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

# On a few hundred rows the network's own defaults stop before anything is learned.
_BATCH, _RATE, _EPOCHS = 32, 0.005, 300


class AutoEncoder:
    """Error with which rows are rebuilt from fewer numbers: low for rows like those it was trained on.

    A small network of three hidden layers, trained on the rows as one column per category and numbers scaled to [0, 1];
    a missing number counts as the middle. It is not the auto-encoder of the paper, which was not published, so that
    counterfactuals optimised with it are near to the paper's, not equal. Host side only: it remembers categories and
    ranges, and weights that were fitted to rows.

    Parameters
    ----------
    rows : float64 array, shape (n_rows, n_features)
        Training rows, categories as numbers.
    categorical : sequence of int
        Columns that hold categories.
    seed : int
        The same rows and seed give the same network.
    """

    def __init__(self, rows: NDArray[np.float64], categorical: Sequence[int], seed: int) -> None:
        numeric = [column for column in range(rows.shape[1]) if column not in categorical]
        self._encoder = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(categorical)), (MinMaxScaler(), numeric)
        ).fit(rows)
        coded = self._encode(rows)
        width = coded.shape[1]
        layers = (max(width // 2, 2), max(width // 4, 1), max(width // 2, 2))
        self._network = MLPRegressor(
            hidden_layer_sizes=layers,
            activation="tanh",
            batch_size=min(_BATCH, len(rows)),
            learning_rate_init=_RATE,
            max_iter=_EPOCHS,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a good rebuilding suffices, the best is not sought
            # One column alone is rebuilt as a vector, not as a table.
            self._network.fit(coded, coded if width > 1 else coded.ravel())

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"AutoEncoder({self._network.n_features_in_} columns)"

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean squared error of each row."""
        coded = self._encode(rows)
        rebuilt = self._network.predict(coded).reshape(coded.shape)
        return np.asarray(((coded - rebuilt) ** 2).mean(axis=1))

    def _encode(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.nan_to_num(np.asarray(self._encoder.transform(rows), dtype=np.float64), nan=0.5)
