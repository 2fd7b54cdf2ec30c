"""Chores around built-in algorithms: skeleton, re-exports, missing parts.

``make algorithm NAME=fedplain``, ``make lint``, ``make missing``
"""

import keyword
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offbeat import algorithms
from offbeat.algorithms import ALGORITHMS, Algorithm

ROOT = Path(__file__).parents[1]

_MODULE = '''\
"""CLASS: what it does, in one line."""

from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, Continuous, Count, Positive, Sum, Update


class CLASS(Algorithm):
    """What it does, in one line: `offbeat algorithms` prints it.

    ``w_{t+1} = w_t − server_lr · Δ_i`` (the formula; then the paper, its section and equation).

    Args:
        server_lr: Step size on a delta, > 0.
        concurrency: Clients at work at the same time, ≥ 1.
    """

    name = "NAME"

    server_lr: Positive = 0.1
    concurrency: Count = 10

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Sum()

    def weigh(self, update: Update) -> float:
        return 1.0

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model - self.server_lr * closed.total()
'''

_TEST = """\
import pytest
import torch

from offbeat.algorithms import CLASS
from tests.algorithms.case import Case

CASES = [Case("NAME", lambda: CLASS(concurrency=2), places=2)]


def test_two_updates_by_hand(plan, upload):
    algorithm = CLASS(server_lr=0.5)
    algorithm.start(torch.tensor([1.0, 2.0]), clients=3)
    for client in range(2):
        algorithm.assign(client, plan)
    assert algorithm.receive(upload(0, 0, 2, -4)) is True
    assert algorithm.receive(upload(1, 0, 1, 1)) is True
    assert algorithm.model.tolist() == [-0.5, 3.5]


@pytest.mark.parametrize("parameters", [{"server_lr": 0.0}, {"concurrency": 0}])
def test_hyper_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        CLASS(**parameters)
"""


def new(name: str, class_name: str = "") -> None:
    """Write the skeleton of an algorithm and of its test, and re-export its class."""
    class_name = class_name or "".join(part.capitalize() for part in name.split("_"))
    module = ROOT / f"src/offbeat/algorithms/{name}.py"
    test = ROOT / f"tests/algorithms/test_{name}.py"
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise SystemExit(f"NAME={name}: write it as a module is named, for instance NAME=fedplain")
    if not class_name.isidentifier() or keyword.iskeyword(class_name):
        raise SystemExit(f"CLASS={class_name}: write it as a class is named, for instance CLASS=FedPlain")
    for path in (module, test):
        if path.exists():
            raise SystemExit(f"{path.relative_to(ROOT)} exists: choose another NAME")
    if name in ALGORITHMS or hasattr(algorithms, name) or hasattr(algorithms, class_name):
        raise SystemExit(f"{name} or {class_name} is taken: choose another NAME or CLASS")
    for path, text in ((module, _MODULE), (test, _TEST)):
        path.write_text(text.replace("NAME", name).replace("CLASS", class_name), encoding="utf-8")
        print(path.relative_to(ROOT))
    package = ROOT / "src/offbeat/algorithms/__init__.py"
    text = package.read_text(encoding="utf-8")
    text = text.replace("\n\nALGORITHMS", f"\nfrom offbeat.algorithms.{name} import {class_name}\n\nALGORITHMS", 1)
    text = text.replace('    "ALGORITHMS",\n', f'    "ALGORITHMS",\n    "{class_name}",\n', 1)
    package.write_text(text, encoding="utf-8")
    _run_ruff("check", "--quiet", "--fix", "--select", "I,RUF022", str(package))
    _run_ruff("format", "--quiet", str(package), str(module), str(test))
    print(f"{package.relative_to(ROOT)}: re-exports {class_name}")


def _run_ruff(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "ruff", *arguments], cwd=ROOT, check=True)


def built_in() -> dict[str, type[Algorithm[Any]]]:
    """Return the algorithms of this package by name, without those of other packages."""
    return {name: kind for name, kind in ALGORITHMS.items() if kind.__module__.startswith("offbeat.algorithms.")}


def exports() -> Iterator[str]:
    """Yield a line for each built-in class missing from ``offbeat.algorithms``."""
    for name, kind in built_in().items():
        module, class_name = kind.__module__.rpartition(".")[2], kind.__name__
        if getattr(algorithms, class_name, None) is not kind or class_name not in algorithms.__all__:
            yield (
                f"src/offbeat/algorithms/__init__.py does not re-export {class_name}: add "
                f"`from offbeat.algorithms.{module} import {class_name}`, and {class_name!r} to __all__"
            )
        if module != name:
            yield f"src/offbeat/algorithms/{module}.py defines {name!r}: rename one of the two"


def missing() -> Iterator[str]:
    """Yield a line for each page, experiment, figure and mention that is missing."""
    every = tomllib.loads((ROOT / "experiments/all-algorithms.toml").read_text(encoding="utf-8"))["algorithms"]
    compared = {table.get("algorithm", label) for label, table in every.items()}
    index = (ROOT / "docs/algorithms/index.md").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").lower()
    for name, kind in built_in().items():
        for what, path in {
            "page": f"docs/algorithms/{name}.md",
            "experiment": f"experiments/algorithms/{name}.toml",
            "figure": f"docs/images/algorithms/{name}.png",
        }.items():
            if not (ROOT / path).exists():
                yield f"{name}: no {what}, {path}"
        if f"]({name}.md)" not in index:
            yield f"{name}: no row in docs/algorithms/index.md"
        if name not in compared:
            yield f"{name}: no table in experiments/all-algorithms.toml"
        names = {name, name.replace("_", " "), kind.__name__.lower()}
        if not any(word in changelog for word in names):
            yield f"{name}: no line in CHANGELOG.md"


def main(arguments: list[str]) -> int:
    """Carry out ``new NAME [CLASS]``, ``exports`` or ``missing``; return the status."""
    match arguments:
        case ["new", name, *rest] if len(rest) < 2:
            new(name, *rest)
        case ["exports"]:
            lines = list(exports())
            print("\n".join(lines), end="\n" if lines else "")
            return len(lines) > 0
        case ["missing"]:
            print("\n".join(missing()) or "nothing is missing")
        case _:
            print("usage: algorithms.py new NAME [CLASS] | exports | missing", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
