from pathlib import Path

import pytest
from pydantic import ValidationError

from offbeat.config.flower_section import FlowerSection


def section(folder, **values):
    return FlowerSection.model_validate(values, context={"folder": folder})


def test_an_app_is_an_import_path_relative_to_the_file():
    assert section(Path("/here"), app="my_app.client_app:app").app == "my_app.client_app:app"
    assert section(Path("/here"), app="mine.py:app").app == "/here/mine.py:app"
    with pytest.raises(ValidationError, match="must be an import path"):
        section(Path("/here"), app="my_app")


def test_settings_are_plain_values():
    settings = {"local-epochs": 2, "lr": 0.5, "name": "a", "fast": True}
    assert section(Path(), app="a:b", run_config=settings).run_config == settings
    assert section(Path(), app="a:b").run_config == {}
    with pytest.raises(ValidationError):
        section(Path(), app="a:b", run_config={"list": [1]})
