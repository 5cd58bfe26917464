"""A real Spark on this machine, for tests that run jobs on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

TESTS = Path(__file__).resolve().parents[1]
NO_JAVA = "Spark needs a Java, and none is installed"


def has_java() -> bool:
    return shutil.which("java") is not None or "JAVA_HOME" in os.environ


@pytest.fixture(scope="session")
def spark_console(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that has all that Spark and its workers say."""
    return tmp_path_factory.mktemp("spark") / "console.txt"


@pytest.fixture(scope="session")
def spark(spark_console: Path) -> Iterator[Any]:
    """Start a session with two workers; they import what tests import."""
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="the extra [spark] is not installed")
    if not has_java():
        pytest.skip(NO_JAVA)
    folders = [
        str(TESTS.parent),
        str(TESTS.parent / "adapters"),
        str(TESTS / "servers"),
        str(TESTS / "helpers"),
    ]
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(spark_console.parent),
    }
    builder = pyspark_sql.SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch, spark_console.open("wb") as said:
        patch.setenv("PYTHONPATH", os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        mine = os.dup(2)
        # the Java process, and through it the workers, write where this points to now
        os.dup2(said.fileno(), 2)
        try:
            session = builder.getOrCreate()
        finally:
            os.dup2(mine, 2)
            os.close(mine)
        yield session
        session.stop()


def on_spark(spark: Any, table: pd.DataFrame, folder: Path, parts: int = 3) -> Any:
    """Return a table on Spark with the types that it has in pandas, in several parts."""
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    table.to_parquet(path, index=False)
    return spark.read.parquet(str(path)).repartition(parts)
