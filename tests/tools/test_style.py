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


def test_only_pages_that_people_write_count(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "ROOT", tmp_path)
    for name, text in {
        "a.md": "two | words",
        "how-to/b.md": "one",
        "results/c.md": "many",
        "reference.md": "all",
    }.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    assert style.words_by_hand() == 3


def test_too_many_words_in_all_are_a_fault(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(style, "ROOT", tmp_path)
    monkeypatch.setattr(style, "MOST_WORDS_BY_HAND", 2)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / "docs" / "a.md").write_text("one two", encoding="utf-8")
    assert style.main() == 0
    (tmp_path / "docs" / "a.md").write_text("one two three", encoding="utf-8")
    assert style.main() == 1
    assert "at most 2 words; these have 3" in capsys.readouterr().out
