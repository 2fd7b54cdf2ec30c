"""A measurement of the tests' strength by changes of single places in the code.

It counts how often a module's own tests notice a change. ``python tools/mutations.py choose --count 200 --seed 0
--output chosen.json`` chooses changes, and ``python tools/mutations.py run chosen.json --output results.json`` tests
each in a copy; if called again, it resumes. Changes are located again after modules were moved; a change whose place no
longer exists is replaced with another change.
"""

import argparse
import compileall
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from check import dotted, own_tests
from possible_mutations import Edit, Mutation, all_mutations, choose, locate

ROOT = Path(__file__).parents[1]
# Also tested by the contract of all algorithms: the state machines, and what they stand on.
UNDER_CONTRACT = re.compile(
    r"packages/client/offbeat_core/compression/|src/offbeat/(algorithms|coordinator|checkpoint_values|tensor_file)"
)
CONTRACT = [f"tests/algorithms/test_{name}.py" for name in ("contract", "contract_basics", "whole_contract")]
PYTEST = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]


def suites_of(module: str, under_contract: bool) -> list[list[str]]:
    """Return the arguments with which Python tests a module, first its own tests."""
    own = own_tests(ROOT / module)
    imported = ["-c", f"import {dotted(ROOT / module)}"]
    first = [*PYTEST, *(test.relative_to(ROOT).as_posix() for test in own)] if own else imported
    return [first, [*PYTEST, *CONTRACT]] if under_contract else [first]


def _not_needed(folder: str, names: list[str]) -> set[str]:
    at_root = {".git", ".venv", "build", "runs", "site"} if Path(folder) == ROOT else set[str]()
    return {"__pycache__", *at_root} & set(names)


def make_copy(folder: str) -> Path:
    """Copy the tree, with bytecode, into a new folder in ``folder``; return its path."""
    tree = Path(tempfile.mkdtemp(dir=folder)) / "tree"
    shutil.copytree(ROOT, tree, ignore=_not_needed)
    for path in (Path(folder), tree.parent):
        path.chmod(0o711)  # PostgreSQL, which refuses to run as root, works in the copy as another user
    (tree / "tmp").mkdir()
    compileall.compile_dir(tree, quiet=1)
    return tree


def call(tree: Path, arguments: list[str], limit: float | None) -> tuple[str, float, str]:
    """Call Python in a copy; return the outcome, seconds, and first failure."""
    own = {
        "PYTHONPATH": os.pathsep.join(f"{tree}/{folder}" for folder in ("src", "packages/client", "studies")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tree / "tmp"),
    }
    own["CI"] = "1"  # hypothesis tries the same examples each time
    began = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": printed}
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, cwd=tree, env=os.environ | own, start_new_session=True, **streams)
        try:
            outcome = "caught" if process.wait(limit) else "survived"
        except subprocess.TimeoutExpired:
            outcome = "timeout"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with whatever its tests have left
        process.wait()
        printed.seek(0)
        lines = printed.read().decode(errors="replace").splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or [*lines, ""][-1:]
    return outcome, round(time.monotonic() - began, 1), failures[0] if outcome == "caught" else ""


def call_mutated(tree: Path, module: str, edit: Edit, calls: list[tuple[list[str], float]]) -> dict[str, Any]:
    """Call Python with a mutated module until a call fails; return the record."""
    file = tree / module
    source, times = file.read_bytes(), file.stat()
    start, end, text = edit
    file.write_bytes(source[:start] + text + source[end:])
    outcome, seconds, failure = "survived", 0.0, ""
    for arguments, limit in calls:
        if outcome == "survived":
            outcome, seconds, failure = call(tree, arguments, limit)
    file.write_bytes(source)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is valid again
    return {"outcome": outcome, "seconds": seconds, "failure": failure}


def run(chosen: dict[str, Any], output: Path, jobs: int) -> list[dict[str, Any]]:
    """Test the unchanged code, then the mutations that lack results; return all.

    The results are written after each mutation. Exit if tests fail without any mutation.
    """
    results: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"unchanged": {}, "mutations": {}}
    wanted = [Mutation(*fields) for fields in chosen["mutations"]]
    possible = all_mutations(ROOT)
    found = locate(wanted, possible, chosen["seed"])
    suites = [
        suites_of(new.module, bool(UNDER_CONTRACT.match(old.module)))
        for old, (new, _) in zip(wanted, found, strict=True)
    ]
    here = threading.local()

    def save(kind: str, key: str, value: Any) -> None:
        results[kind][key] = value
        output.write_text(json.dumps(results, indent=1))

    def test_unchanged(arguments: list[str]) -> None:
        outcome, seconds, failure = call(here.tree, arguments, None)
        print("unchanged", outcome, f"{seconds:.0f} s", *arguments, failure, flush=True)
        if outcome == "survived":
            save("unchanged", " ".join(arguments), seconds)

    def test_mutation(number: int) -> None:
        mutation, how = found[number]
        calls = [(suite, max(180, 3 * results["unchanged"][" ".join(suite)])) for suite in suites[number]]
        outcome = call_mutated(here.tree, mutation.module, possible[mutation], calls)
        has_tests = "-m" in suites[number][0]
        save("mutations", str(number), {**mutation._asdict(), "how": how, "has_tests": has_tests, **outcome})
        print(number, *outcome.values(), how, *mutation[:5], sep=" | ", flush=True)

    with tempfile.TemporaryDirectory() as folder:

        def prepare() -> None:
            here.tree = make_copy(folder)

        with ThreadPoolExecutor(jobs, initializer=prepare) as pool:
            different = {" ".join(suite): suite for both in suites for suite in both}
            untested = [suite for name, suite in different.items() if name not in results["unchanged"]]
            list(pool.map(test_unchanged, untested))
            if different.keys() - results["unchanged"].keys():
                raise SystemExit("tests fail without any mutation: mend them first")
            list(pool.map(test_mutation, [at for at in range(len(found)) if str(at) not in results["mutations"]]))
    return [results["mutations"][str(number)] for number in range(len(found))]


def print_shares(tested: list[dict[str, Any]]) -> None:
    """Print the share of mutations that was caught, in total and by group."""
    groups: dict[str, list[bool]] = {}
    for one in tested:
        package = "/".join(one["module"].split("/")[2:-1]) or "(top)"
        names = ["all", f"operator {one['operator']}", f"package {package}", f"mutation is {one['how']}"]
        names.append("module has tests of its own" if one["has_tests"] else "module has no tests of its own")
        for name in names:
            groups.setdefault(name, []).append(one["outcome"] != "survived")
    for name, caught in sorted(groups.items()):
        print(f"{name}: {sum(caught)} of {len(caught)} caught, {sum(caught) / len(caught):.0%}")


def main() -> None:
    """Choose mutations, or test those that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    choosing, running = commands.add_parser("choose"), commands.add_parser("run")
    choosing.add_argument("--count", type=int, default=200)
    choosing.add_argument("--seed", type=int, default=0)
    running.add_argument("chosen", type=Path)
    running.add_argument("--jobs", type=int, default=1)
    for command in (choosing, running):
        command.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "run":
        print_shares(run(json.loads(given.chosen.read_text()), given.output, given.jobs))
    else:
        mutations = choose(all_mutations(ROOT), given.count, given.seed)
        lines = ",\n".join(json.dumps(mutation) for mutation in mutations)
        given.output.write_text(f'{{"seed": {given.seed}, "mutations": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
