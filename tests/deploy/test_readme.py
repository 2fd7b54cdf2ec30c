"""The README of a new federation, followed as it stands."""

import os

import pytest
from processes import write_programs
from stranger_service import Federation


@pytest.mark.long
def test_the_readme_leads_from_the_start_to_a_restored_server(tmp_path, free_port, offbeat):
    folder = tmp_path / "trial"
    assert offbeat("new", str(folder), "--template", "service")[0] == 0
    for name in ("README.md", "server.toml"):
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(text.replace("8443", str(free_port)), encoding="utf-8")
    write_programs(tmp_path / "bin")
    variables = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with Federation(folder, variables) as federation:
        federation.follow()
    assert (folder / "model.safetensors").exists()
