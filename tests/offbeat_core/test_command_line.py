"""The run of a program's command line."""

import subprocess
import sys

PROGRAM = """
import click
from offbeat_core.command_line import run_program

def fail():
    raise FileNotFoundError("there is no model.safetensors")

run_program(click.Command("fail", callback=fail), "program")
"""


def test_an_error_of_the_system_without_a_number_is_named_by_its_message():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "program: there is no model.safetensors\n")
