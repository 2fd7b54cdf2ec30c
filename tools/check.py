"""Lint, types and tests of what has changed.

``python tools/check.py [BASE]`` looks at what differs from the commit ``BASE``, by default where the branch left
``main``. A test module is about a changed module if it has its place and name, or imports it; about a changed
``conftest.py`` if it lies beside or below it. What many test modules import is tested by those of its name alone.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
STUDIES = ROOT / "studies"
SOURCES = (ROOT / "src", ROOT / "packages/client", STUDIES)
TYPED = ("src", "packages/client", "studies/offbeat_studies")
MANY = 12
"""Test modules that import a module; if there are more, they are left to ``make unit``."""


def own_tests(module: Path) -> list[Path]:
    """Return the test modules that mirror a module."""
    for source in SOURCES:
        if module.is_relative_to(source):
            path = module.relative_to(source)
            is_root = path.parts[0] in ("offbeat", "offbeat_studies")
            tests = STUDIES / "tests" if source == STUDIES else TESTS
            mirrored = tests / (path.relative_to(path.parts[0]) if is_root else path)
            return sorted(mirrored.parent.glob(f"test_{module.stem}*.py"))
    return []


def dotted(path: Path) -> str:
    """Return the name under which a file is imported."""
    root = next((source for source in SOURCES if path.is_relative_to(source)), ROOT)
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield the names that a file imports, of modules and of attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def tests_of(changed: Iterable[Path]) -> list[Path]:
    """Return the test modules that are about changed files."""
    modules = sorted([*TESTS.rglob("test_*.py"), *(STUDIES / "tests").rglob("test_*.py")])
    importers = {path: set(imports(path)) for path in modules}
    found: set[Path] = set()
    for path in changed:
        if path.suffix != ".py" or not path.exists():
            continue
        if path in importers:
            found.add(path)
        elif path.name == "conftest.py":
            beside = [module for module in modules if module.is_relative_to(path.parent)]
            found.update(beside if len(beside) <= MANY else ())
        else:
            found.update(own_tests(path))
            users = [module for module, names in importers.items() if dotted(path) in names]
            if len(users) <= MANY:
                found.update(users)
            else:
                print(f"{len(users)} test modules import {dotted(path)}: make unit runs them", file=sys.stderr)
    return sorted(found)


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def changed_files(base: str | None) -> list[Path]:
    """Return the files that differ from a commit, or are new."""
    commit = base or next(iter(git("merge-base", "HEAD", "main")), "HEAD")
    names = {*git("diff", "--name-only", commit), *git("ls-files", "--others", "--exclude-standard")}
    return [ROOT / name for name in sorted(names)]


def main() -> int:
    """Check what changed; return the number of checks that failed."""
    changed = changed_files(sys.argv[1] if len(sys.argv) > 1 else None)
    programs = Path(sys.executable).parent
    typed = [path for path in changed if path.suffix == ".py" and path.exists()]
    typed = [path for path in typed if any(path.is_relative_to(ROOT / folder) for folder in TYPED)]
    tests = tests_of(changed)
    commands = [
        ["ruff", "check", "--quiet"],
        ["ruff", "format", "--check", "--quiet"],
        ["python", "tools/style.py"],
        *([["basedpyright", *map(str, typed)]] if typed else []),
        *([["pytest", "-q", "-n", "2", *map(str, tests)]] if tests else []),
    ]
    failed = [
        command[0] for command in commands
        if subprocess.run([programs / command[0], *command[1:]], cwd=ROOT, check=False).returncode
    ]  # fmt: skip
    print(f"{len(tests)} test modules, {len(typed)} modules typed: {', '.join(failed) or 'nothing'} failed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
