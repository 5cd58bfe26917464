"""C-CHVAE: the autoencoder's gradient and what it learns, and rows decoded from around a query."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.c_chvae import CChvae
from cfk_adapters.vae import Vae
from cfk_plugin.dp.gradients import propagate
from cfk_plugin.errors import AdapterError
from loan_table import Linear, loans, model_of_loans, numbers


def along_a_line(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Two numbers that are opposite, a whole one and a category that follow them, and one that does not."""
    random = np.random.default_rng(seed)
    z = random.normal(size=n)
    return pd.DataFrame(
        {
            "a": z + 0.1 * random.normal(size=n),
            "b": -z + 0.1 * random.normal(size=n),
            "c": np.round(20 + 5 * z),
            "d": np.where(z > 0, "above", "below"),
            "e": random.choice(list("xyz"), n),
        }
    )


def rows_as_vectors(random: np.random.Generator, n: int) -> np.ndarray:
    one_hot = [np.eye(size)[random.integers(0, size, n)] for size in (2, 4)]
    one_hot[1][0] = 0  # a category that no training row has
    return np.hstack([random.normal(size=(n, 3)), *one_hot])


def test_training_follows_the_gradient_of_the_evidence_bound() -> None:
    random = np.random.default_rng(0)
    vae, x = Vae(3, [2, 4], latent=2, hidden=5, random=random), rows_as_vectors(random, 7)
    vae.parameters += random.normal(0, 0.3, vae.parameters.shape)
    noise = random.normal(size=(7, 2))
    found, expected = vae.loss_and_gradient(x, noise)[1], np.empty(vae.parameters.size)
    for i in range(vae.parameters.size):
        kept, sides = vae.parameters[i], []
        for step in (1e-6, -1e-6):
            vae.parameters[i] = kept + step
            sides.append(vae.loss_and_gradient(x, noise)[0])
        vae.parameters[i] = kept
        expected[i] = (sides[0] - sides[1]) / 2e-6
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_loss_is_the_negative_evidence_bound() -> None:
    random = np.random.default_rng(1)
    vae, x = Vae(3, [2], latent=2, hidden=5, random=random), rows_as_vectors(random, 6)[:, :5]
    code, noise = vae.encode(x), np.zeros((6, 2))
    out, coded = vae.decode(code), propagate(vae._encoder, x)[0]
    errors = ((x - out)[:, :3] ** 2).sum(axis=1) / (2 * 0.5**2)
    chances = -np.log((out[:, 3:] * x[:, 3:]).sum(axis=1))
    divergence = 0.5 * (np.exp(coded[:, 2:]) + code**2 - 1 - coded[:, 2:]).sum(axis=1)
    assert vae.loss_and_gradient(x, noise)[0] == pytest.approx((errors + chances + divergence).mean())
    np.testing.assert_allclose(out[:, 3:].sum(axis=1), 1)


def test_it_has_the_widths_of_the_experiments() -> None:
    explainer = CChvae(along_a_line(50), lambda rows: rows["a"] > 0, steps=1)
    inputs = 3 + 2 + 3
    sizes = [(inputs, 20), (20, 2 * 8), (8, 20), (20, inputs)]  # means and variances of eight codes
    assert explainer._trained().parameters.size == sum(a * b + b for a, b in sizes)


def test_answers_lie_where_the_training_rows_do() -> None:
    train = along_a_line()

    def model(rows: pd.DataFrame) -> np.ndarray:
        return (rows["a"] > 0.7).to_numpy()

    queries = train[train["a"] < 0].head(60)
    answers = CChvae(train, model, samples=100, steps=800).explain(queries)
    assert model(answers).all()
    # The model looks at `a` alone; the other columns follow it, as they do in the training rows.
    assert (answers["a"] + answers["b"]).abs().mean() < 0.2
    assert (answers["c"] - 20 - 5 * answers["a"]).abs().mean() < 1.5
    assert (answers["d"] == "above").mean() > 0.9
    assert (answers["c"] % 1 == 0).all()
    assert set(answers["e"]) <= set("xyz")
    assert not answers.merge(train, how="left", indicator=True)["_merge"].eq("both").any()


def test_a_category_that_no_training_row_has_can_be_asked_with() -> None:
    train = loans(200)
    model = model_of_loans(train)
    queries = train[model.predict(train) == "no"].head(5).assign(job="pilot")
    queries = queries[model.predict(queries) == "no"]
    answers = CChvae(train, model, samples=50, steps=200).explain(queries)
    assert (model.predict(answers) == "yes").all()
    assert set(answers["job"].dropna()) <= {*train["job"].dropna(), "pilot"}


def test_seven_thousand_numbers_are_answered() -> None:
    train = numbers(30, 7000)
    model = Linear(np.random.default_rng(1).normal(size=7000))
    queries = train[model.predict(train) == 0].head(3)
    answers = CChvae(train, model, steps=5, batch=8, samples=10).explain(queries)
    assert (model.predict(answers) == 1).all()


@pytest.mark.parametrize("settings", [{"latent": 0}, {"steps": 0}, {"rate": 0.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(AdapterError, match="must be at least 1 and rate above 0"):
        CChvae(numbers(5, 2), Linear(np.ones(2)), **settings)  # type: ignore[arg-type]
