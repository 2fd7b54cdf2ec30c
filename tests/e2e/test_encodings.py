"""Terminals of any encoding, and folders whose name is not UTF-8."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from offbeat_core.command_line import accept_all_text

ENCODINGS = {
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},  # as file names, too
}

# In one process, since each takes a second to start.
PROGRAM = """
import sys
import warnings

warnings.filterwarnings("ignore", category=EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module="offbeat")  # we name each file's encoding

from offbeat.cli.main import app, main
from offbeat_private.helper.commands import helper

def commands(command, path=()):
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, (*path, name))

def run(command, name, *words):
    sys.argv[1:] = words
    try:
        main(command, name)
    except SystemExit as end:
        assert not end.code, (words, end.code)

for path in commands(app):
    run(app, "offbeat", *path, "--help")
for path in commands(helper):
    run(helper, "offbeat-helper", *path, "--help")
run(app, "offbeat", "algorithms")
run(app, "offbeat", "data", "list")
"""
# ASCII lacks the most; a run starts PyTorch.
COMPARE = """
run(app, "offbeat", "population", "tiny.toml")
run(app, "offbeat", "compare", "tiny.toml", "--algorithm", "fedbuff")
"""


@pytest.fixture
def folder(tmp_path: Path, tiny: dict[str, Any]) -> Path:
    """A folder whose name is not UTF-8, with the small experiment."""
    path = tmp_path / os.fsdecode(b"M\xe9decine")
    path.mkdir()
    tiny = tiny | {"stop": {"virtual_seconds": 5.0}}
    (path / "tiny.toml").write_text(tomli_w.dumps(tiny), encoding="utf-8")
    return path


def run(program: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    environment = kept | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} | variables
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("codec", ENCODINGS)
def test_all_help_in_each_encoding_and_a_run_in_ascii(folder: Path, codec: str) -> None:
    program = PROGRAM + (COMPARE if codec == "ascii" else "")
    done = run([sys.executable, "-X", "warn_default_encoding", "-c", program], folder, ENCODINGS[codec])
    assert (done.returncode, done.stderr.decode(codec)) == (0, ""), done.stderr
    text = done.stdout.decode(codec)
    assert "Usage: offbeat compare" in text
    assert ("Available clients" in text) is (codec == "ascii")
    assert (folder / "runs" / "tiny" / "report.html").exists() is (codec == "ascii")


def test_a_file_of_ones_own_in_such_a_folder_is_refused_by_its_name(folder: Path) -> None:
    program = [sys.executable, "-m", "offbeat"]
    assert run([*program, "new", "own"], folder, {}).returncode == 0
    done = run([*program, "compare", "own/experiment.toml"], folder, {})
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 2  # the model and the data
    assert rb"M\udce9decine/own/model.py is not UTF-8: rename it" in done.stderr
    done = run([*program, "population", os.fsdecode(b"\xe9.toml")], folder, {"PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 2
    assert b"Invalid value for 'FILE': the name \xe9.toml is not UTF-8: rename it." in done.stderr


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", b"... +- \\xe9 \\u2603 \xe9"),
        ("latin-1", b"... \xb1 \xe9 \\u2603 \xe9"),
        ("cp1252", b"\x85 \xb1 \xe9 \\u2603 \xe9"),
        ("utf-8", "… ± é ☃ ".encode() + b"\xe9"),
    ],
)
def test_what_an_encoding_lacks_is_written_in_ascii(encoding: str, expected: bytes) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    accept_all_text(stream)
    print("… ± é ☃ \udce9", end="", file=stream, flush=True)
    assert written.getvalue() == expected
