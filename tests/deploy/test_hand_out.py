"""The script that puts what clients need to enrol into a folder."""

import os
import subprocess

from processes import DEPLOY


def test_an_empty_token_is_made_again_and_another_one_kept(tmp_path):
    server, folder, programs = (tmp_path / name for name in ("server", "handout", "bin"))
    for path in (server / "tls", folder, programs):
        path.mkdir(parents=True)
    (server / "tls" / "ca.pem").write_text("ca")
    program = programs / "offbeat"
    program.write_text('#!/bin/sh\nfor file; do :; done\n[ ! -e "$file" ] && echo "$# words" > "$file"\n')
    program.chmod(0o755)
    token = folder / "enrolment-token"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for content, expected in (("", "11 words\n"), ("secret\n", "secret\n")):
        token.write_text(content)
        subprocess.run(["sh", DEPLOY / "hand_out.sh", server, folder, "3"], env=environment, check=True)
        assert token.read_text() == expected
    assert (folder / "ca.pem").read_text() == "ca"
