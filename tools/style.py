"""Check prose: docstrings, comments, messages and pages.

``python tools/style.py`` prints one line for each sentence to rewrite and exits with 1 if there is any. Each rule
stands for a habit that made readers read a sentence twice; a rule that finds only good sentences should go.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "packages", "studies", "tests", "tools", "benchmarks", "examples")
LONGEST_SUMMARY = 80
MOST_WORDS = 1200
MOST_WORDS_BY_HAND = 60_000

# Pages and folders in docs/ that a program writes: they do not count as written by hand.
GENERATED = (
    "docs/api",
    "docs/results",
    "docs/reference.md",
    "docs/performance-tables.md",
    "docs/theory-measurements.md",
    "docs/benchmark.md",
)

# Pages that are longer, and how long they may be: references, and what a program writes.
LONGER_PAGES = {
    "docs/performance.md": 1300,
    "docs/performance-tables.md": 3100,
    "docs/privacy/protocol.md": 1800,
    "docs/protocol.md": 2700,
    "docs/reference.md": 5200,
    "docs/results/algorithms.md": 2700,
    "docs/results/fedfa.md": 4000,
    "docs/results/index.md": 1500,
    "docs/results/fedlaavg.md": 5000,
    "docs/results/fedluck.md": 2000,
    "docs/results/patterns.md": 6000,
    "docs/results/what_to_use.md": 3100,
    "docs/theory-measurements.md": 1500,
}

PHRASES = {
    r"\b(?:as ever|for ever|anyhow|meanwhile)\b": "a filler: drop it, or say how long",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|better|worse|slower)\w+": "write “is not a …”",
    r"\bmakes? no (?!difference|sense)\w+": "write “does not make a …”",
    r"\bis (?:told|said)\b": "name the mechanism: returns, reports, logs, sends",
    r"\bin mid-\w+": "write “during a …”",
    r"\b(?:over|another|broken) lines?\b|\bthe line (?:ends|breaks|allows)\b": "a connection; a line is a line of text",
    r"\b(?:may|can|could|cannot|to) be had\b": "write “is available”",
    r"\bgoes? on where\b": "write “resumes”",
    r"\bfrom then on\b|\bso to speak\b|\bof one's own\b|\bof ones own\b": "name the thing, or drop it",
}
_PHRASES = [(re.compile(pattern), advice) for pattern, advice in PHRASES.items()]
_RIDDLE = re.compile(r"^(?:What|Who|Whose|Where|When|Which|How|Whether|Why)\b")


def summaries(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the first line of each docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.splitlines()[0]


def faults_of_source(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number of each fault in a Python file, with advice."""
    is_test = any(path.is_relative_to(ROOT / folder) for folder in ("tests", "studies/tests"))
    for number, summary in summaries(path):
        if not is_test and len(summary) > LONGEST_SUMMARY:
            yield number, f"a docstring's first line has at most {LONGEST_SUMMARY} characters"
        if _RIDDLE.match(summary):
            yield number, "begin a docstring with a noun or an imperative"
    yield from phrases(path.read_text(encoding="utf-8"))


def faults_of_page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number of each fault in a page, with advice."""
    text = path.read_text(encoding="utf-8")
    most = LONGER_PAGES.get(str(path.relative_to(ROOT)), MOST_WORDS)
    words = count_words(text)
    if words > most:
        yield 1, f"a page has at most {most:,} words; this one has {words:,}"
    blank = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    yield from phrases(blank)


def count_words(text: str) -> int:
    """Return the number of words; the lines of a table are none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def words_by_hand() -> int:
    """Return the number of words in the pages of docs/ that people write."""
    pages = (page for page in (ROOT / "docs").rglob("*.md") if not _is_generated(page))
    return sum(count_words(page.read_text(encoding="utf-8")) for page in pages)


def _is_generated(page: Path) -> bool:
    return any(page.is_relative_to(ROOT / place) for place in GENERATED)


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number of each banned phrase, with advice."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in _PHRASES:
            if found := pattern.search(line):
                yield number, f"“{found[0]}”: {advice}"


def main() -> int:
    """Print all faults; return 1 if there are any."""
    found = 0
    found_in = (path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    sources = [path for path in found_in if path.name not in ("style.py", "test_style.py")]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [*sources, *pages]:
        check = faults_of_source if path.suffix == ".py" else faults_of_page
        for number, fault in check(path):
            found += 1
            print(f"{path.relative_to(ROOT)}:{number}: {fault}")
    if (words := words_by_hand()) > MOST_WORDS_BY_HAND:
        found += 1
        print(f"docs: pages written by hand have at most {MOST_WORDS_BY_HAND:,} words; these have {words:,}: cut some")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
