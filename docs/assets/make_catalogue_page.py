"""Draw catalogue-page.png: the page of a catalogue of real patients, with an answer, as a browser
shows it.

Run it from the repository's root: ``python docs/assets/make_catalogue_page.py``. It needs
playwright and a Chromium.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.demo import OUTCOMES, TITLES, UNITS, load_patients
from cfk_plugin.release.publication import catalogue_page

ROOT = Path(__file__).resolve().parents[2]
PICTURE = Path(__file__).with_name("catalogue-page.png")
QUERY = {"age": "38", "sex": "1", "bmi": "25.4", "bp": "84", "chol": "162"}
QUERY |= {"ldl": "103", "hdl": "42", "tc_hdl": "4", "log_tg": "4.4427", "glucose": "87"}


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from browsing import browser, visit

    data = load_patients(patients=5)
    train = data.train.drop(columns="progression")
    schema = Schema.from_frame(
        train,
        quasi_identifiers=["age", "sex", "bmi"],
        nominal=["sex"],
        titles=TITLES,
        units=UNITS,
        outcomes=OUTCOMES,
    )
    population = Population.from_frame(train, schema, key=b"picture")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=10, guarantee="catalogue"))
    anonymizer.fit(population, model=data.model, desired=0)
    with TemporaryDirectory() as folder, browser() as started:
        page = Path(folder) / "page.html"
        page.write_text(
            catalogue_page(anonymizer.published(), population, title="Low progression of diabetes"),
            encoding="utf-8",
        )
        with visit(started, page.as_uri(), width=900) as found:
            for name, value in QUERY.items():
                field = found.page.get_by_label(name, exact=True)
                if field.evaluate("e => e.tagName") == "SELECT":
                    field.select_option(label=value)
                else:
                    field.fill(value)
            for name in ("age", "sex"):
                found.page.get_by_label(f"{name}: cannot change").check()
            found.page.get_by_role("button", name="Find").click()
            found.run("() => document.activeElement.blur()")
            bottom = found.run(
                "() => document.getElementById('answer').getBoundingClientRect().bottom + scrollY"
            )
            clip = {"x": 0, "y": 0, "width": 900, "height": bottom + 24}
            picture = Image.open(BytesIO(found.page.screenshot(full_page=True, clip=clip)))
            picture.convert("RGB").quantize(32).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
