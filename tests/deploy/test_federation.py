"""The processes of the compose file make up a federation with TLS and three sites."""

import os
import subprocess

import pytest
from processes import TEMPLATE, Processes

from tests.service.http_client import until

FEW = {"versions = 50000": "versions = 20"}


@pytest.mark.long
def test_three_sites_train_one_is_revoked_and_a_backup_is_made(tmp_path, free_port, offbeat):
    with Processes(tmp_path / "here", free_port, FEW) as processes:
        processes.up()
        server = processes.volumes / "server"
        for number in range(3):
            log = processes.log(f"site-{number}")
            until(lambda log=log: "the run is over; the client stays" in log.read_text(), 120)
            assert "updates counted" in log.read_text()
        assert "version: 20\n" in offbeat("server", "status", str(server))[1]
        assert (processes.volumes / "handout/ca.pem").read_text().startswith("-----BEGIN CERTIFICATE")
        assert offbeat("server", "clients", "revoke", str(server), "client-1") == (0, "client-1: revoked\n", "")
        processes.start("backup")
        assert processes.wait("backup") == 0
        (copy,) = (processes.volumes / "backups").iterdir()
        assert "\ncounted: 40\n" in offbeat("server", "status", str(copy))[1]


def back_up(program, folder, backups, keep=2):
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = ["sh", TEMPLATE / "back_up.sh", folder, backups, str(keep)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_newest_backups_are_kept(tmp_path):
    program, backups = tmp_path / "bin/offbeat", tmp_path / "backups"
    for made in (program.parent, backups, backups / "of-another-program"):
        made.mkdir()
    program.write_text('#!/bin/sh\nmkdir "$4" && echo "$3" > "$4/from"; echo backed up\n')
    program.chmod(0o755)
    for number in range(4):
        code, output = back_up(program, f"folder-{number}", backups)
        copies = sorted(backups.glob("2*"))
        assert (code, output) == (0, f"{copies[-1]}\n")
    assert [(copy / "from").read_text() for copy in copies] == ["folder-2\n", "folder-3\n"]
    assert (backups / "of-another-program").exists()
    program.write_text('#!/bin/sh\nmkdir "$3"; exit 3\n')
    assert back_up(program, "folder-4", backups) == (3, "")
    assert sorted(backups.glob("2*")) == copies
