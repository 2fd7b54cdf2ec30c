"""The code that a page of the docs shows, as a module."""

import re
from functools import cache
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"


@cache
def page_code(page: str, title: str) -> ModuleType:
    """Return the block of this title as a module."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (code,) = re.findall(rf'^```python title="{title}"\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    module = ModuleType(title.removesuffix(".py"))
    exec(compile(code, title, "exec"), vars(module))
    return module
