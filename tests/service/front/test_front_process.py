import subprocess
import sys
import time

from tests.service.conftest import running


def test_a_front_needs_neither_pytorch_nor_a_database():
    code = "import sys, offbeat.service.front.front_process; print({'torch', 'sqlalchemy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_front_that_cannot_start_says_why_in_a_line(tmp_path, capfd):
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "fronts").touch()
    said = ""
    with running(tmp_path / "server", front_processes=1):
        for _ in range(300):
            said += capfd.readouterr().err
            if "fronts/0/partial" in said:
                break
            time.sleep(0.1)
    assert "front_failed" in said
    assert "Not a directory" in said
    assert "Traceback" not in said
