"""What is wrong with the HTML of a report, found by parsing it: no browser is needed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "col", "br", "wbr"}
LOADING = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "form", "base"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, *tags: str) -> list[Element]:
        return [found for found in self.walk() if found.tag in tags]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Tree(HTMLParser):
    """The elements of a page; a tag that is not closed in order is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]
        self.feed(html)
        self.close()
        assert self.open == [self.root], f"not closed: {[element.tag for element in self.open[1:]]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        # a space that does not break a line is one
        self.open[-1].children.append(data.replace("\u00a0", " "))


def problems(html: str, *, outside: tuple[str, ...] = ()) -> list[str]:
    """Return what a report must not have, or lacks; `outside` are the addresses that links may lead
    to.
    """
    root = Tree(html).root
    found = [f"<{element.tag}>" for element in root.all(*LOADING)]
    found += [
        f"{name} on <{element.tag}>"
        for element in root.walk()
        for name in element.attributes
        if _loads(name)
    ]
    found += _addresses(html, outside)
    found += _headings(root)
    found += [
        f"table without caption or scope: {table.attributes.get('id')}"
        for table in _bad_tables(root)
    ]
    found += [
        f"picture without title and description: {svg.attributes}" for svg in _bad_pictures(root)
    ]
    found += _anchors(root)
    found += [
        f"{tag} occurs {len(root.all(tag))} times"
        for tag in ("header", "nav", "main", "footer")
        if len(root.all(tag)) != 1
    ]
    return found


def _loads(name: str) -> bool:
    return name in {"src", "srcset", "action", "ping", "background", "data"} or name.startswith(
        "on"
    )


def _addresses(html: str, outside: tuple[str, ...]) -> list[str]:
    # A long address may be broken into lines, and what is in a `data:` link is no address.
    rest = re.sub(r"(?<=;base64,)[\w+/=]*", "", html.replace("<wbr>", ""))
    for address in outside:
        rest = rest.replace(address, "")
    return [
        f"address {match}"
        for match in re.findall(
            r"(?:https?:|ftp:|file:|javascript:|url\((?!#)|@import|//)[^\s<\"]{0,30}", rest
        )
    ]


def _headings(root: Element) -> list[str]:
    levels = [
        int(element.tag[1]) for element in root.walk() if re.fullmatch(r"h[1-6]", element.tag)
    ]
    found = (
        []
        if levels.count(1) == 1 and levels[:1] == [1]
        else [f"headings of the first level: {levels.count(1)}"]
    )
    return found + [
        f"h{after} follows h{before}"
        for before, after in itertools.pairwise(levels)
        if after > before + 1
    ]


def _bad_tables(root: Element) -> list[Element]:
    return [
        table
        for table in root.all("table")
        if not any(caption.text.strip() for caption in table.all("caption"))
        or not table.all("th")
        or any(cell.attributes.get("scope") not in {"col", "row"} for cell in table.all("th"))
    ]


def _bad_pictures(root: Element) -> list[Element]:
    whole = [svg for svg in root.all("svg") if "role" in svg.attributes]
    parts = {id(part) for svg in whole for part in svg.all("svg")}
    bad = [svg for svg in root.all("svg") if id(svg) not in parts]  # a picture that is no image
    for svg in whole:
        named = [
            element
            for element in svg.children
            if isinstance(element, Element) and element.tag in {"title", "desc"}
        ]
        labels = (svg.attributes.get("aria-labelledby") or "").split()
        if [element.attributes.get("id") for element in named] != labels or not all(
            e.text.strip() for e in named
        ):
            bad.append(svg)
    return bad


def _anchors(root: Element) -> list[str]:
    ids = [identity for element in root.walk() if (identity := element.attributes.get("id"))]
    found = [
        f"id {identity} occurs twice"
        for identity in sorted({identity for identity in ids if ids.count(identity) > 1})
    ]
    for element in root.walk():
        for name in ("aria-labelledby", "aria-describedby"):
            missing = set((element.attributes.get(name) or "").split()) - set(ids)
            found += [f"{name} of nothing: {identity}" for identity in sorted(missing)]
        target = element.attributes.get("href") or ""
        if target.startswith("#") and target[1:] not in ids:
            found.append(f"link to nothing: {target}")
    return found
