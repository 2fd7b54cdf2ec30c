"""Help, completion and quick commands import only what they need."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from offbeat.cli.main import app

# Runs command lines in one process; a line of JSON has the output of each, and all packages imported so far.
RUN = """
import contextlib, io, json, os, sys
before = set(sys.modules)
from offbeat.__main__ import main
for words, environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    sys.argv[1:] = words
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main()
    packages = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
    output.flush()
    print(json.dumps([output.buffer.getvalue().decode(), sorted(packages)]))
"""

RELEASE = str(Path(__file__).parents[1] / "deploy" / "release_0_1" / "server")

LIGHT = {"click", "offbeat", "offbeat_client", "offbeat_core", "offbeat_private", "offbeat_studies"}
HEAVY = {"fastapi", "granian", "matplotlib", "pandas", "pyarrow", "sklearn", "torch"}

COMPLETIONS = {
    "offbeat comp": {"plain,compare"},
    "offbeat compare --check": {"plain,--checkpoint-every"},
    "offbeat compare --trainer vm": {"plain,vmap"},
    "offbeat server clients re": {"plain,rename", "plain,revoke", "file,re"},
    "offbeat helper s": {"plain,serve", "plain,status"},
    "offbeat report run": {"file,run"},
}

QUICK = [
    *(["server", command, "nowhere"] for command in ("status", "clients", "tokens", "list", "pause", "resume")),
    ["server", "clients", "revoke", "nowhere", "ward 3"],
    ["data", "get", "nothing"],
    ["helper", "status", "--folder", "nowhere"],
    ["privacy", "epsilon", "--noise-multiplier", "5", "--participations", "10", "--delta", "1e-5"],
    ["server", "tokens", "make", "nowhere", "admin", "--output", "token"],
    ["server", "audit", "verify", RELEASE],
    ["server", "audit", "show", RELEASE],
    ["server", "list", RELEASE],
    ["server", "backup", RELEASE, "copy"],
    ["helper", "enrol", "roster.toml"],
]


def run(*calls: tuple[list[str], dict[str, str]]) -> list[tuple[str, set[str]]]:
    """Return for each call, words and environment, its output and the packages imported until then."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(calls)],
        stdout=subprocess.PIPE, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    return [(output, set(packages)) for output, packages in map(json.loads, done.stdout.splitlines())]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, command in group.commands.items():
        yield from commands(command, (*words, name)) if isinstance(command, click.Group) else [(*words, name)]


def test_help_and_completion_need_only_click():
    helped = list(commands(app))
    completed = [
        ([], {"_OFFBEAT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))})
        for words in COMPLETIONS
    ]
    results = run(*(([*words, "--help"], {}) for words in helped), *completed)
    for words, (output, packages) in zip(helped, results, strict=False):
        assert output.startswith(f"Usage: {' '.join(('offbeat', *words))}"), words
        assert packages <= LIGHT, words
    for (words, expected), (output, packages) in zip(COMPLETIONS.items(), results[len(helped) :], strict=True):
        assert set(output.splitlines()) == expected, words
        assert packages <= LIGHT, words


def test_quick_commands_import_nothing_heavy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roster.toml").write_text("[terms]\n")
    for words, (_, packages) in zip(QUICK, run(*((words, {}) for words in QUICK)), strict=True):
        assert "offbeat" in packages
        assert not packages & HEAVY, words
    assert (tmp_path / "copy").exists()


def test_commands_that_read_runs_need_no_torch():
    ((_, packages),) = run((["track", "nowhere", "--to", "tensorboard"], {}))
    assert "pyarrow" in packages
    assert "torch" not in packages
