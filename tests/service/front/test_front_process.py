import subprocess
import sys


def test_a_front_needs_neither_pytorch_nor_a_database():
    code = "import sys, offbeat.service.front.front_process; print({'torch', 'sqlalchemy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
