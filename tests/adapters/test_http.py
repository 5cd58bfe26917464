"""An explainer and a model behind HTTP: a real server, and how often it is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, QUERIES, ROWS, label
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.adapting import ExplainerError

SCHEMA = Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
POPULATION = Population.from_frame(ROWS, SCHEMA)
NEIGHBORS = NearestUnlikeNeighbour(ROWS, label, desired=1, features=FEATURES)


@contextmanager
def serving() -> Iterator[tuple[str, Counter[str]]]:
    """Answer /explain and /predict about a table in JSON, and count who asks what."""
    asked: Counter[str] = Counter()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            rows = pd.DataFrame(**sent).astype(ROWS[FEATURES].dtypes)
            asked[self.path] += 1
            if self.path == "/explain":
                answer: Any = NEIGHBORS.explain(rows).astype(object).to_numpy().tolist()
            else:
                answer = label(rows).tolist()
            body = json.dumps(answer).encode()
            self.send_response(500 if self.path == "/broken" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def post(url: str, rows: pd.DataFrame) -> Any:
    body = json.dumps(
        {"columns": list(rows), "data": rows.astype(object).to_numpy().tolist()}
    ).encode()
    try:
        with urlopen(
            Request(url, body, {"Content-Type": "application/json"}), timeout=30
        ) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:  # it is the answer, too, and open
            raise ValueError(error.read().decode()) from None


@pytest.mark.parametrize("guarantee", ["catalogue", "lookup"])
def test_a_call_asks_explainer_behind_http_once_and_model_at_most_twice(guarantee: Any) -> None:
    with serving() as (url, asked):

        def explain(queries: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame(
                post(f"{url}/explain", queries), columns=queries.columns, index=queries.index
            )

        explain.depends_on_rows = "no"  # type: ignore[attr-defined]

        def predict(rows: pd.DataFrame) -> Any:
            return np.array(post(f"{url}/predict", rows))

        policy = PrivacyPolicy(k=4, guarantee=guarantee, min_pureness=0)
        private = protect(
            explain,
            model=predict,
            population=POPULATION,
            policy=policy,
            desired=1,
        )
        private.explain(QUERIES)  # what is asked once for a fit
        for queries in (QUERIES.head(1), QUERIES):
            asked.clear()
            assert private.explain(queries).released
            assert asked["/explain"] == 1
            assert asked["/predict"] <= 2


def test_an_explainer_behind_http_is_asked_once_whatever_the_guarantee() -> None:
    with serving() as (url, asked):

        def explain(queries: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame(
                post(f"{url}/explain", queries), columns=queries.columns, index=queries.index
            )

        explain.depends_on_rows = "no"  # type: ignore[attr-defined]

        private = protect(
            explain,
            model=label,
            population=POPULATION,
            policy=PrivacyPolicy(k=4),
            desired=1,
        )
        asked.clear()
        private.explain(QUERIES)
        assert asked == {"/explain": 1}


def test_what_a_server_says_when_it_fails_does_not_leave() -> None:
    with serving() as (url, asked):

        def explain(queries: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame(post(f"{url}/broken", queries), columns=queries.columns)

        explain.depends_on_rows = "no"  # type: ignore[attr-defined]

        private = protect(
            explain,
            model=label,
            population=POPULATION,
            policy=PrivacyPolicy(k=4),
            desired=1,
        )
        with pytest.raises(ExplainerError, match="raised ValueError") as failed:
            private.explain(QUERIES)
        assert asked == {"/broken": 1}
        assert str(QUERIES["income"].iloc[0]) not in str(failed.value)
