"""What a pickle needs is pinned as it is installed, and nothing else is."""

from __future__ import annotations

import sys
import types
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from cfk_plugin.serving.requirements import modules_of_code, pickled, requirements_of

OURS = [f"{name}=={version(name)}" for name in ("cfk-plugin", "mlflow")]


def by_value(text: str) -> Any:
    """Return what a notebook would define as `explain`: cloudpickle stores it as a whole."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(text, namespace)
    return namespace["explain"]


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {"age": [20, 30, 40, 50], "requests": ["yaml", "rich", "dice_ml", "xgboost"]}
    )


def modules_of(thing: Any) -> set[str]:
    return pickled(thing)[1]


def test_modules_are_those_that_loading_imports() -> None:
    fitted = LogisticRegression().fit([[0], [1]], [0, 1])
    pickle, found = pickled({"model": fitted, "rows": table()})
    assert {"sklearn.linear_model._logistic", "pandas"} <= found
    assert not {name.split(".")[0] for name in found} & {
        "requests",
        "yaml",
        "rich",
        "dice_ml",
        "xgboost",
    }
    assert cloudpickle.loads(pickle)["rows"].equals(table())


def test_functions_stored_by_value_are_read_down_to_their_import_statements() -> None:
    explain = by_value(
        "import scipy.stats as st\n"
        "def explain(queries):\n"
        "    import rich.table\n"
        "    def inner():\n"
        "        from sklearn.tree import DecisionTreeClassifier\n"
        "    return st.norm, inner\n"
    )
    found = modules_of(explain)
    assert {"scipy.stats", "rich.table", "sklearn.tree"} <= found


def test_an_import_far_behind_many_names_is_found() -> None:
    # arguments above 255 take a prefix
    lines = [f"    name{i} = queries.name{i}" for i in range(400)]
    explain = by_value(
        "\n".join(["def explain(queries):", *lines, "    import yaml", "    return yaml"])
    )
    assert "yaml" in modules_of(explain)


def test_what_a_thing_is_rebuilt_with_is_needed() -> None:
    class Rebuilt:
        def __reduce__(self) -> Any:
            return mlflow.pyfunc.load_model, ("models:/nothing",)

    assert modules_of(Rebuilt()) == {"mlflow.pyfunc"}


def test_a_plain_explainer_needs_neither_dice_nor_xgboost() -> None:
    explain = by_value("def explain(queries):\n    return queries.assign(age=30)\n")
    pins = requirements_of(modules=modules_of(explain) | modules_of(LogisticRegression()))
    assert pins == [
        *OURS,
        *(f"{name}=={version(name)}" for name in ("cloudpickle", "scikit-learn")),
    ]


def test_a_dice_explainer_needs_dice_and_leaves_the_rest_to_pip() -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    rows = pd.DataFrame({"age": np.arange(20, 60), "pay": np.arange(40.0)}).assign(
        good=np.arange(40) % 2
    )
    data = dice_ml.Data(dataframe=rows, continuous_features=["age", "pay"], outcome_name="good")
    fitted = LogisticRegression().fit(rows[["age", "pay"]], rows["good"])
    explainer = dice_ml.Dice(data, dice_ml.Model(model=fitted, backend="sklearn"), method="random")
    pins = requirements_of(modules=modules_of(explainer) | modules_of(fitted))
    assert f"dice-ml=={version('dice-ml')}" in pins
    assert not [line for line in pins if line.startswith(("xgboost", "nvidia"))]


def test_xgboost_is_pinned_for_a_model_of_its_own() -> None:
    with warnings.catch_warnings(action="ignore"):  # of the machine's C library
        xgboost = pytest.importorskip("xgboost", reason="comes with the extra [dice]")
        fitted = xgboost.XGBClassifier(n_estimators=1).fit(
            np.arange(8).reshape(8, 1), np.arange(8) % 2
        )
    assert requirements_of(modules=modules_of(fitted)) == [*OURS, f"xgboost=={version('xgboost')}"]


def test_what_the_user_gives_stands_in_the_place_of_what_was_found() -> None:
    pins = requirements_of(
        modules=modules_of(LogisticRegression()),
        replacements=["scikit_learn>=1.5", "lightgbm==4.6.0"],
    )
    assert pins == [*OURS, "lightgbm==4.6.0", "scikit_learn>=1.5"]
    assert requirements_of(replacements=["cfk_plugin @ file:///wheel"]) == [
        "cfk_plugin @ file:///wheel",
        OURS[1],
    ]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of somebody's own, which no distribution has."""
    text = "import rich\nfrom .other import x\ndef explain(queries):\n    return queries\n"
    (tmp_path / "my_explainer.py").write_text(text, encoding="utf-8")
    module = types.ModuleType("my_explainer")
    monkeypatch.setitem(sys.modules, "my_explainer", module)
    exec("def explain(queries):\n    return queries\n", module.__dict__)
    return module


def test_a_module_of_no_distribution_is_named(local: Any, tmp_path: Path) -> None:
    needed = modules_of(local.explain)
    with pytest.warns(UserWarning, match="module my_explainer.* as code_paths=") as caught:
        assert requirements_of(modules=needed) == OURS
    assert len(caught) == 1
    expected = [*OURS, f"rich=={version('rich')}"]  # what the code imports is needed, too
    assert (
        requirements_of(modules=needed, code_paths=[str(tmp_path / "my_explainer.py")]) == expected
    )
    assert requirements_of(modules=needed, code_paths=[str(tmp_path)]) == expected


def test_code_is_read_for_absolute_imports(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import numpy as np, yaml.reader\nfrom . import b\nfrom scipy import stats\n"
    )
    assert modules_of_code(tmp_path) == {"numpy", "yaml.reader", "scipy"}


def test_a_logged_model_brings_what_it_was_logged_with(mlflow_store: str) -> None:
    with mlflow.start_run():
        here = f"numpy=={version('numpy')}"
        first = mlflow.pyfunc.log_model(
            name="explainer",
            python_model=by_value("def explain(model_input):\n    return model_input\n"),
            pip_requirements=[here, "lightgbm==4.6.0"],
        )
        other = mlflow.pyfunc.log_model(
            name="model",
            python_model=by_value("def explain(model_input):\n    return model_input\n"),
            pip_requirements=["numpy==1.26.0"],
        )
    assert requirements_of([first.model_uri]) == [*OURS, "lightgbm==4.6.0", here]
    with pytest.warns(UserWarning, match=r"numpy==1.26.0 are needed.*logged with numpy"):
        assert here in requirements_of([first.model_uri, other.model_uri])
    assert "numpy<3" in requirements_of(
        [first.model_uri, other.model_uri], replacements=["numpy<3"]
    )
