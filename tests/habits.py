"""Count habits of our English in comments, texts of the code and pages: ``python tests/habits.py``.

It reports and never fails: a count that grows is worth a look, and a word may be right where it is.
``python tests/habits.py anew`` prints the lines with one habit.
"""

from __future__ import annotations

import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROOMS = ("cfk_plugin", "adapters", "tests", "docs", "README.md")

HABITS = {
    "what is ...ed": (r"\b[Ww]hat (?:is|was|has been) \w+(?:ed|n)\b", "the noun"),
    "carries": (r"\bcarr(?:y|ies)\b", "contains, has"),
    "those that": (r"\b[Tt]hose (?:that|who)\b", "the noun again"),
    "somebody": (r"\b(?:[Ss]ome|[Nn]o|[Ee]very)body\b", "someone, no one, every person"),
    "of which": (r"\b(?:[Oo]f|[Ii]n|[Ff]or) wh(?:ich|om)\b", "whose, or two sentences"),
    "is none": (r"\b(?:is|are) (?:no [A-Z]\w+|none)\b", "is not a ..., is None"),
    "alone": (r"\balone\b", "only"),
    "else": (r", else\b", "otherwise"),
    "Say whether": (r"\bSay (?:whether|which)\b", "Return whether"),
    "whatever": (r"\b[Ww](?:hatever|hichever|hoever)\b", "any, regardless of"),
    "beside": (r"\b[Bb]eside\b", "next to, with"),
    "anew": (r"\banew\b", "again"),
    "who asks": (r"\bwho asks?\b", "the applicant, the query"),
    "that is none": (r"\b[Rr]efuse \w+ that\b", "Raise if ... is invalid"),
    "told of": (r"\b(?:mended|lent|told of)\b", "fixed, passed, reported"),
}
"""Name to the pattern of a habit and what to write instead."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that a person reads as English, each with its number."""
    if path.suffix == ".py":
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    yield from enumerate(token.string.splitlines(), token.start[0])
        return
    is_code = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        is_code ^= line.startswith("```")
        if not is_code:
            yield number, line


def files_of(room: str) -> list[Path]:
    """Return the Python files and the pages of a room."""
    place = REPOSITORY / room
    return [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.md")]


def main() -> None:
    """Print the counts of all habits by room, or the lines with one of them."""
    counts: Counter[tuple[str, str]] = Counter()
    for room in ROOMS:
        for path in files_of(room):
            for number, line in prose(path):
                for habit, (pattern, _) in HABITS.items():
                    counts[habit, room] += len(re.findall(pattern, line))
                    if habit in sys.argv[1:] and re.search(pattern, line):
                        print(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}")
    if len(sys.argv) == 1:
        print(f"{'':16}" + "".join(f"{room:>12}" for room in ROOMS) + "  write")
        for habit, (_, instead) in HABITS.items():
            cells = "".join(f"{counts[habit, room]:12}" for room in ROOMS)
            print(f"{habit:16}{cells}  {instead}")


if __name__ == "__main__":
    main()
