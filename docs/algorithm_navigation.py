"""Navigation of the algorithms' pages.

It has every page of ``docs/algorithms``, in the order of its index.
"""

import re
from pathlib import Path
from typing import Any

_TAB, _SECTION = "Algorithms", "One by one"


def on_config(config: Any) -> Any:
    """Fill the section of the navigation; MkDocs calls it."""
    (tab,) = (entry[_TAB] for entry in config.nav if _TAB in entry)
    (section,) = (entry for entry in tab if _SECTION in entry)
    section[_SECTION] = [f"algorithms/{page}" for page in _pages(Path(config.docs_dir) / "algorithms")]
    return config


def _pages(folder: Path) -> list[str]:
    """Return the pages in the order of the index, then those that the index lacks."""
    linked = re.findall(r"^\| \[[^]]+\]\((\w+\.md)\)", (folder / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    pages = sorted(page.name for page in folder.glob("*.md") if page.name != "index.md")
    return sorted(pages, key=lambda page: linked.index(page) if page in linked else len(linked))
