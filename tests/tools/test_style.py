import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("style", Path(__file__).parents[2] / "tools" / "style.py")
style = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(style)


@pytest.mark.parametrize(
    "sentence",
    [
        "It goes on where it was.",
        "A weight is no number.",
        "The client, as ever, waits.",
        "What is told to clients is told once.",
        "The upload goes over another line.",
    ],
)
def test_a_banned_phrase_is_found_on_its_line(sentence):
    ((number, _),) = style.phrases(f"A good sentence.\n{sentence}\n")
    assert number == 2


@pytest.mark.parametrize("sentence", ["There is no limit.", "It has every key.", "It is no longer than a line."])
def test_a_good_sentence_is_not_reported(sentence):
    assert list(style.phrases(sentence)) == []


@pytest.mark.parametrize(
    ("summary", "faults"), [("Return the update.", 0), ("What a client sends.", 1), (f"Return {'a' * 80}.", 1)]
)
def test_the_first_line_of_a_docstring(tmp_path, summary, faults):
    (tmp_path / "module.py").write_text(f'"""{summary}"""\n', encoding="utf-8")
    assert len(list(style.faults_of_source(tmp_path / "module.py"))) == faults


def test_a_page_that_is_too_long_is_found_and_code_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```\nas ever\n```\n" + "word " * style.MOST_WORDS, encoding="utf-8")
    assert [number for number, _ in style.faults_of_page(page)] == [1]
    page.write_text("```\nas ever\n```\n" + "| --- " * style.MOST_WORDS, encoding="utf-8")  # no word is too many
    assert list(style.faults_of_page(page)) == []
