"""Help, completion and quick commands import only what they need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Runs a command line, and names all packages that it imported: on standard error, since the command writes, too.
RUN = """
import sys
before = set(sys.modules)
from offbeat.__main__ import main
try:
    main()
finally:
    packages = {name.partition(".")[0] for name in set(sys.modules) - before}
    print(*sorted(packages - set(sys.stdlib_module_names)), file=sys.stderr)
"""

ALL_HELP = """
import sys
before = set(sys.modules)
from offbeat.cli.main import app

def show(command, *words):
    command.main(["--help"], prog_name=" ".join(words), standalone_mode=False)
    for name, below in getattr(command, "commands", {}).items():
        show(below, *words, name)

show(app, "offbeat")
packages = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(packages - set(sys.stdlib_module_names)), file=sys.stderr)
"""

RELEASE = str(Path(__file__).parents[1] / "deploy" / "release_0_1" / "server")

LIGHT = {"click", "offbeat", "offbeat_client", "offbeat_core", "offbeat_private", "offbeat_studies"}
HEAVY = {"fastapi", "granian", "matplotlib", "pandas", "pyarrow", "sklearn", "torch"}


def run(script: str, *arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Return the output of a script, and the packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    return done.stdout, set(done.stderr.splitlines()[-1].split())


def test_help_needs_only_click():
    out, packages = run(RUN, "--help")
    assert "  compare " in out
    assert packages <= LIGHT


def test_the_help_of_every_command_needs_only_click():
    out, packages = run(ALL_HELP)
    for usage in ("offbeat compare", "offbeat sweep", "offbeat serve", "offbeat privacy plan"):
        assert f"Usage: {usage}" in out
    assert packages <= LIGHT


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("offbeat comp", {"plain,compare"}),
        ("offbeat compare --check", {"plain,--checkpoint-every"}),
        ("offbeat compare --trainer vm", {"plain,vmap"}),
        ("offbeat server clients re", {"plain,rename", "plain,revoke", "file,re"}),
        ("offbeat helper s", {"plain,serve", "plain,status"}),
        ("offbeat report run", {"file,run"}),
    ],
)
def test_completion_needs_only_click(words, expected):
    last = str(words.count(" "))
    out, packages = run(RUN, _OFFBEAT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert set(out.splitlines()) == expected
    assert packages <= LIGHT


@pytest.mark.parametrize(
    "words",
    [
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
    ],
    ids=" ".join,
)
def test_quick_commands_import_nothing_heavy(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roster.toml").write_text("[terms]\n")
    _, packages = run(RUN, *words)
    assert "offbeat" in packages
    assert not packages & HEAVY
    assert (tmp_path / "copy").exists() is ("backup" in words)


@pytest.mark.parametrize("words", [["track", "nowhere", "--to", "tensorboard"]], ids=" ".join)
def test_commands_that_read_runs_need_no_torch(words):
    _, packages = run(RUN, *words)
    assert "pyarrow" in packages
    assert "torch" not in packages
