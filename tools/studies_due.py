"""The decision whether CI runs the tests of studies/.

``python tools/studies_due.py [BASE]`` exits with 0 and names a file if a change since the commit ``BASE`` concerns
them, else with 1. Without ``BASE`` it is where the branch left ``main``; on ``main`` it is the commit before. A clone
without that commit counts as changed. The files are those of studies/, what their modules and tests import, and the
pages that they write.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from check import ROOT, git, imports

ROOTS = ("src", "packages/client", "studies", ".")
WATCHED = (
    "studies/",
    "experiments/algorithms/",
    "docs/results/",
    "docs/theory",
    "docs/benchmark",
    "docs/concepts/reproduce.md",
    "pyproject.toml",
    "packages/client/pyproject.toml",
)
NOT_FOLLOWED = {"src/offbeat/cli/main.py"}  # it imports every command


def files_of(name: str) -> Iterator[Path]:
    """Yield the files of this repository that importing a name executes."""
    parts = name.split(".")
    for root in (ROOT / folder for folder in ROOTS):
        for end in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:end])
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def imported_files() -> set[str]:
    """Return the files of studies/ and those that they import."""
    waiting = list((ROOT / "studies").rglob("*.py"))
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        name = path.relative_to(ROOT).as_posix()
        if name in found:
            continue
        found.add(name)
        if name not in NOT_FOLLOWED:
            waiting += (file for imported in imports(path) for file in files_of(imported))
    return found


def first_concerned(changed: Iterable[str]) -> str | None:
    """Return the first changed file that the tests of studies/ are about."""
    files = imported_files()
    return next((name for name in sorted(changed) if name in files or name.startswith(WATCHED)), None)


def base_of_branch() -> str:
    """Return the commit where the branch left ``main``; on ``main`` the one before."""
    head = git("rev-parse", "HEAD")
    left = next((found for main in ("main", "origin/main") if (found := git("merge-base", "HEAD", main))), head)
    return left[0] if left != head else "HEAD^"


def main() -> int:
    """Print why the tests are due and return 0, or return 1."""
    base = sys.argv[1] if len(sys.argv) > 1 else base_of_branch()
    if not git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        print(f"tests of studies/: due, since there is no commit {base}")
        return 0
    name = first_concerned(git("diff", "--name-only", "--no-renames", base))
    print(f"tests of studies/: due, since {name} has changed" if name else "tests of studies/: nothing has changed")
    return 0 if name else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
