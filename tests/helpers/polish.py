"""A third language, with more plural forms than English and German."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def polish() -> dict[str, Any]:
    """Return the content of a language's file: English frames, and numbers as Polish writes them."""
    file = files("cfk_plugin") / "languages" / "en.json"
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    content |= {"language": "pl", "columns": {}}
    content["plurals"] = {
        "categories": ["one", "few", "many", "other"],
        "rule": "n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2",
    }
    content["numbers"] |= {"decimal": ",", "group": " ", "counts": ["zero", "jeden", "dwa", "trzy"]}
    content["numbers"]["words"] = content["numbers"]["counts"]
    forms = {"one": "miesiąc", "few": "miesiące", "many": "miesięcy", "other": "miesiąca"}
    content["units"] = {
        "percent": {"other": "{} %"},
        "month": {category: f"{{}} {form}" for category, form in forms.items()},
    }
    content["values"] |= {
        "range": "{low} do {high}",
        "more": "{named} i {count} {inna|inne|innych}",
    }
    return content
