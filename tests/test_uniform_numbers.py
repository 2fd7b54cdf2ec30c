import math
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_core.randomness import Purpose, generator, words

from offbeat.uniform_numbers import UniformStream, choose_clients, example_order, number, smallest_in_rows, uniform

WORDS = st.integers(0, 2**32 - 1)
SEEDS = st.integers(0, 2**64 - 1)


@given(seed=SEEDS, purpose=WORDS, client=WORDS, visit=WORDS, draw=WORDS)
def test_a_uniform_number_is_made_of_the_first_two_words(seed, purpose, client, visit, draw):
    high, low, _, _ = (int(word[0]) for word in words(seed, purpose, client, visit, draw))
    assert uniform(seed, purpose, client, visit, draw).tolist() == [((high >> 5) * 2**26 + (low >> 6)) / 2**53]
    assert number(seed, purpose, client, visit, draw) == uniform(seed, purpose, client, visit, draw)[0]


def test_uniform_numbers_have_the_shape_of_their_arguments():
    numbers = uniform(11, 4, np.arange(3)[:, None, None], np.array([0, 7])[:, None], np.arange(5))
    assert numbers.shape == (3, 2, 5)
    assert numbers[2, 1, 4] == number(11, 4, 2, 7, 4)


def test_uniform_numbers_are_in_range_and_look_uniform():
    numbers = uniform(5, Purpose.LOSS, client=np.arange(400)[:, None], draw=np.arange(500)).ravel()
    count = len(numbers)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 1 / 2) < 5 / np.sqrt(12 * count)
    assert abs(numbers.var() - 1 / 12) < 5 / np.sqrt(180 * count)
    shares = np.histogram(numbers, bins=50, range=(0, 1))[0] / count
    assert np.abs(shares - 1 / 50).max() < 5 * np.sqrt(0.02 * 0.98 / count)
    assert len(np.unique(numbers)) == count


@pytest.mark.parametrize(
    "other",
    [{"seed": 3 + 2**32}, {"purpose": Purpose.SELECTION}, {"client": 1}, {"visit": 1}, {"draw": np.arange(1, 100_001)}],
)
def test_numbers_that_differ_in_one_coordinate_are_uncorrelated(other):
    given_ = {"seed": 3, "purpose": Purpose.LOSS, "client": 0, "visit": 0, "draw": np.arange(100_000)}
    one, two = uniform(**given_), uniform(**given_ | other)
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(len(one))


@pytest.mark.parametrize("position", [0, 1, 1023, 1024, 3000, 2**32 - 3])
def test_a_stream_is_uniform_drawn_one_after_the_other(position):
    stream = UniformStream(6, Purpose.SELECTION, position)
    drawn = [stream.next() for _ in range(1100)]
    draws = np.arange(position, position + 1100)
    assert drawn == uniform(6, Purpose.SELECTION, visit=draws >> 32, draw=draws & (2**32 - 1)).tolist()
    assert stream.position == position + 1100


def test_a_stream_may_be_wound_back():
    stream = UniformStream(6, 7)
    first = [stream.next() for _ in range(1500)]
    stream.position = 3
    assert [stream.next() for _ in range(1497)] == first[3:]


@settings(max_examples=50)
@given(seed=SEEDS, client=WORDS, visit=WORDS, examples=st.integers(1, 40), epochs=st.integers(1, 4))
def test_every_epoch_of_an_example_order_is_a_permutation(seed, client, visit, examples, epochs):
    order = example_order(seed, client, visit, examples, examples * epochs)
    assert order.dtype == torch.int64
    assert order.shape == (examples * epochs,)
    for epoch in order.reshape(epochs, examples):
        assert sorted(epoch.tolist()) == list(range(examples))


@settings(max_examples=50)
@given(seed=SEEDS, examples=st.integers(1, 40), draws=st.integers(0, 100), more=st.integers(0, 100))
def test_asking_for_more_examples_never_changes_the_first(seed, examples, draws, more):
    short, long = (example_order(seed, 3, 1, examples, count) for count in (draws, draws + more))
    assert len(short) == draws
    assert torch.equal(long[:draws], short)


def test_example_orders_differ_by_seed_client_visit_and_epoch():
    orders = [example_order(*place, 50, 100) for place in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    halves = {tuple(half.tolist()) for order in orders for half in order.split(50)}
    assert len(halves) == 8
    assert torch.equal(orders[0], example_order(0, 0, 0, 50, 100))


def test_example_order_by_sorting_the_words():
    drawn = [words(7, Purpose.MINIBATCHES, 3, 2, draw)[:, 0].tolist() for draw in range(12)]
    keys = [(high << 32) + low for high, low, _, _ in drawn]
    expected = [sorted(range(6), key=lambda example, epoch=epoch: keys[6 * epoch + example]) for epoch in (0, 1)]
    assert example_order(7, 3, 2, 6, 10).tolist() == (expected[0] + expected[1])[:10]


@settings(max_examples=80)
@given(
    seed=SEEDS,
    rows=st.integers(1, 3),
    examples=st.integers(1, 3000),
    share=st.floats(0.0, 1.0),
    most=st.sampled_from([2**64 - 1, 2**63, 2**5]),
    least=st.sampled_from([0, 2**62]),
)
def test_few_of_many_keys_are_in_the_order_of_all(seed, rows, examples, share, most, least):
    keys = np.random.default_rng(seed).integers(least, max(most, least + 3), (rows, examples), np.uint64, endpoint=True)
    count = (rows - 1) * examples + math.ceil(share * examples)
    expected = [sorted(range(examples), key=lambda example, row=row: (int(row[example]), example)) for row in keys]
    found = smallest_in_rows(keys, count if share else 0)
    assert found.dtype == np.int64
    assert found.tolist() == list(chain(*expected))[: count if share else 0]


def test_nothing_touches_the_global_generators():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    torch_state = torch.get_rng_state()
    generator(1, 2).random(5)
    example_order(1, 2, 3, 10, 20)
    UniformStream(1, 2).next()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_each_client_is_chosen_equally_often():
    chosen = [choose_clients(3, version, 10, 4, lambda client: client != 7) for version in range(2000)]
    assert all(len(set(clients)) == 4 for clients in chosen)
    counts = np.bincount(np.concatenate(chosen), minlength=10)
    assert counts[7] == 0
    share = 4 / 9
    assert np.abs(np.delete(counts, 7) / 2000 - share).max() < 5 * np.sqrt(share * (1 - share) / 2000)


def test_a_choice_does_not_depend_on_clients_that_cannot_evaluate():
    everyone = choose_clients(3, 5, 10, 10, lambda _: True)
    assert sorted(everyone) == list(range(10))
    assert choose_clients(3, 5, 10, 3, lambda client: client in everyone[4:]) == everyone[4:7]
    assert choose_clients(3, 5, 10, 3, lambda client: client == 2) == [2]
    assert choose_clients(4, 5, 10, 10, lambda _: True) != everyone != choose_clients(3, 6, 10, 10, lambda _: True)
