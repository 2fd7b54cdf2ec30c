"""Reports of real runs with a planted truth, for ``planted_worlds.py --real``.

Small runs on ``digits``, of a softmax classifier: 20 comparisons of three seeds in each of two worlds. In one, both
names stand for the same FedBuff, with seeds of its own each. In the other, FedBuff is beside itself with five times the
step size; it is faster, and the finding must warn.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

from offbeat.report.page.page import write_report
from offbeat.report.summary import summarise
from offbeat.report.verdict import verdict
from offbeat.runs.directory import Run, read

_REPORTS, _SEEDS = 20, 3
_EXPERIMENT = """seeds = SEEDS
[data]
name = "digits"
[model]
name = "softmax"
[population]
clients = 60
step_seconds = { distribution = "lognormal", median = 1.0, sigma = 0.5 }
[local]
batch_size = 10
steps = 5
lr = 0.01
[stop]
virtual_seconds = 60
[evaluate]
every_seconds = 0.5
target = 0.7
[algorithms.fedbuff]
buffer_size = 5
[algorithms.longer]
algorithm = "fedbuff"
buffer_size = 5
server_lr = 5.0
"""


def main() -> None:
    """Run all, write the reports, and print what their findings say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "planted.toml"
        file.write_text(_EXPERIMENT.replace("SEEDS", str(list(range(1, 2 * _REPORTS * _SEEDS + 1)))), encoding="utf-8")
        command = [sys.executable, "-m", "offbeat", "compare", str(file), "--output", str(folder / "runs")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        runs = [read(path.parent) for path in sorted((folder / "runs").rglob("config.toml"))]
        print("| world | reports | state that one is faster | warn of the step size | right |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for world, of in (("two names of one algorithm", _equal), ("faster by step size alone", _longer_steps)):
            stated, warned, right = zip(*(_report(chosen, world, folder) for chosen in of(runs)), strict=True)
            print(f"| {world} | {_REPORTS} | {sum(stated)} | {sum(warned)} | {sum(right)} |")


def _report(runs: Sequence[Run], world: str, folder: Path) -> tuple[bool, bool, bool]:
    """Return whether the report states something, warns, and is right."""
    page = write_report(runs, folder / "report", world, "make planted").read_text(encoding="utf-8")
    found = re.search(r'class="finding"[^>]*>(.*?)</p>', page, re.DOTALL)
    assert found is not None
    sentence = unescape(re.sub(r"<.*?>", " ", found[1]))
    is_warned = "Not tuned" in sentence
    statements = set(verdict(summarise(runs)).statements())
    is_stated = " faster than " in sentence
    assert is_stated == bool(statements)
    is_right = is_warned and statements <= {("longer", "fedbuff")} if "step" in world else not is_stated
    return is_stated, is_warned, is_right


def _equal(runs: Sequence[Run]) -> Iterator[list[Run]]:
    own = sorted((run for run in runs if run.label == "fedbuff"), key=lambda run: run.seed)
    for place in range(0, len(own), 2 * _SEEDS):
        first, second = own[place : place + _SEEDS], own[place + _SEEDS : place + 2 * _SEEDS]
        yield [*first, *(replace(run, label="other", seed=one.seed) for run, one in zip(second, first, strict=True))]


def _longer_steps(runs: Sequence[Run]) -> Iterator[list[Run]]:
    for place in range(_REPORTS):
        seeds = range(place * _SEEDS + 1, (place + 1) * _SEEDS + 1)
        yield [run for run in runs if run.seed in seeds]
