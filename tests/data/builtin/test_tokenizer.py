import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offbeat.data.builtin.tokenizer import encode, token_count, vocabulary

SENTENCES = ["the cat  sat", "The DOG sat\ton the mat", "a cat"]


def test_words_by_falling_frequency_then_alphabetically():
    # the 3, cat 2, sat 2, and a, dog, mat, on once.
    assert vocabulary(SENTENCES) == {"the": 2, "cat": 3, "sat": 4, "a": 5, "dog": 6, "mat": 7, "on": 8}
    assert vocabulary(SENTENCES, size=4) == {"the": 2, "cat": 3, "sat": 4, "a": 5}


def test_padding_cutting_and_unknown_words():
    numbers = vocabulary(SENTENCES, size=3)
    encoded = encode(["Sat the bird", "", "cat cat cat cat the the"], numbers, length=5)
    assert encoded.dtype == np.int64
    assert encoded.tolist() == [[4, 2, 1, 0, 0], [0, 0, 0, 0, 0], [3, 3, 3, 3, 2]]
    assert token_count(numbers) == 5


words = st.lists(st.text("abAB", min_size=1, max_size=2)).map(" ".join)


@given(seen=st.lists(words), unseen=st.lists(words), size=st.integers(0, 6), length=st.integers(0, 5))
def test_numbers_are_in_range_and_can_be_turned_back(seen, unseen, size, length):
    numbers = vocabulary(seen, size)
    assert sorted(numbers.values()) == list(range(2, 2 + len(numbers)))
    assert len(numbers) <= size
    names = {number: word for word, number in numbers.items()}
    encoded = encode(unseen, numbers, length)
    assert encoded.shape == (len(unseen), length)
    for row, sentence in zip(encoded.tolist(), unseen, strict=True):
        expected = sentence.lower().split()[:length]
        assert row[len(expected) :] == [0] * (length - len(expected))
        for number, word in zip(row, expected, strict=False):
            assert names.get(number) == word if word in numbers else number == 1
            assert 0 < number < token_count(numbers)
