"""Write real-sentences.md: what ten people would read, from three public tables.

``python docs/explanation/sentences/make_sentences.py DATA`` needs the folder with the tables of the
paper, as docs/reproduction/index.md describes it.
"""

from __future__ import annotations

import sys
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1]
sys.path[:0] = [str(DOCS)]

from cfk_plugin import Attribute, KAnonymizer, Population, Schema, Wording  # noqa: E402
from reproduction.prepare import make_forest  # noqa: E402 - the folder is not installed
from reproduction.tables import read_table  # noqa: E402

PAGE = HERE.parent / "real-sentences.md"
N_SENTENCES: Mapping[str, int] = {"german": 4, "heart": 3, "adult": 3}
MOST_PEOPLE = 3000  # of the training table; adult has 29,000
SEED = 0


def sentences_of(name: str, words: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return heading, introduction and sentences of one table.

    The people are the first test rows that the model refuses. None is left out because of what
    they would read.
    """
    table = read_table(name, folder)
    features = list(table.features)
    train, test = train_test_split(table.frame, test_size=0.4, random_state=SEED)
    train = train.head(MOST_PEOPLE).reset_index(drop=True)
    model = make_forest(train[features], 100, None).fit(train[features], train[table.target])
    is_refused = model.predict(test[features]) != table.desired
    people = test.loc[is_refused, features].head(N_SENTENCES[name]).reset_index(drop=True)
    schema = Schema.from_frame(
        train[features],
        quasi_identifiers=list(table.quasi_identifiers),
        immutable=words["immutable"],
        monotone=words.get("monotone"),
        never_advise=words.get("never_advise"),
        titles=words["titles"],
        units=words["units"],
        outcomes=words["outcomes"],
        columns={name: Attribute(phrases=phrase) for name, phrase in words["phrases"].items()},
    )
    anonymizer = KAnonymizer()
    anonymizer.fit(Population.from_frame(train[features], schema), model, table.desired)
    explanations = anonymizer.explain(people)
    german = []
    if "german" in words:
        wording = Wording(language="de", **words["german"])
        german = explanations.text(people, wording)[:1]
    return {
        "heading": words["heading"],
        "intro": words["intro"].strip(),
        "note": words["note"].strip(),
        "english": explanations.text(people),
        "german": german,
    }


def page_of(folder: Path) -> str:
    """Return the page."""
    described = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [sentences_of(name, words, folder) for name, words in described.items()]
    environment = Environment(  # noqa: S701 - Markdown
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.md.j2").render(
        parts=parts, count=sum(N_SENTENCES.values())
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page_of(Path(sys.argv[1])), encoding="utf-8")


if __name__ == "__main__":
    main()
