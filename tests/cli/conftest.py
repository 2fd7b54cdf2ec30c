from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
