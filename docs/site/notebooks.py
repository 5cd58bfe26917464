"""Notebooks as pages of the site, as they were run: MkDocs checks and styles them as it does
Markdown.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    for notebook in [each for each in files if each.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        cells = map(written, json.loads(notebook.content_string)["cells"])
        files.append(File.generated(config, _named(notebook.src_uri), content="\n\n".join(cells)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to notebooks lead to their pages."""
    return re.sub(r"(?<=\]\()([^)]*\.ipynb)(?=\))", lambda found: _named(found[1]), markdown)


def written(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(_output, cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    """Return the richest form of an output; a blank line would end HTML in Markdown."""
    found = {
        kind: "".join(data)
        for kind, data in output.get("data", {"text/plain": output.get("text", "")}).items()
    }
    if html := found.get("text/html"):
        dense = re.sub(r"\n\s*\n", "\n", html)
        return f'<div class="output">\n{dense}\n</div>'
    if png := found.get("image/png"):
        return f'<img class="output" alt="{found.get("text/plain", "")}" src="data:image/png;base64,{png.strip()}">'
    return f"```{{ .text .said }}\n{found['text/plain']}\n```"


def _named(notebook: str) -> str:
    return notebook.removesuffix("ipynb") + "md"
