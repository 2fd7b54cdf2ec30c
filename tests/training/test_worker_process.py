import os
import platform
import subprocess
import sys

import pytest

from offbeat.training import worker_process
from offbeat.training.worker_process import keep_freed_memory

STEPS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from offbeat.training.worker_process import keep_freed_memory

def step():
    blocks = [np.ones(2**20, np.float32) for _ in range(8)]

def page_faults():
    for _ in range(20):
        step()
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    return getrusage(RUSAGE_SELF).ru_minflt - before

before = page_faults()
keep_freed_memory()
print(before, page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused():
    # With this threshold glibc does not adapt to the program, so blocks of 4 MiB go back to the system.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run([sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    # A page has 4 KiB, on some systems 64: a step takes at least 8 · 4 MiB / 64 KiB = 512.
    assert before > 20 * 500
    assert after < 500


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(worker_process.ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
