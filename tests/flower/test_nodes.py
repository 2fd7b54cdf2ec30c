from offbeat.flower.nodes import Nodes


def test_nodes_are_numbered_in_their_order_and_keep_their_numbers():
    nodes = Nodes(3)
    assert nodes.see([70, 50]) == []
    assert nodes.available == {0: 70, 1: 50}
    assert nodes.see([50]) == [0]
    assert nodes.available == {1: 50}
    assert nodes.see([60, 50, 70]) == []
    assert nodes.available == {0: 70, 1: 50, 2: 60}


def test_a_new_node_takes_the_number_of_the_one_that_is_offline_longest():
    nodes = Nodes(3)
    nodes.see([1, 2, 3])
    nodes.see([1, 3])
    nodes.see([1])
    assert nodes.see([1, 4]) == []
    assert nodes.available == {0: 1, 1: 4}
    nodes.see([1, 4, 5])
    assert nodes.available == {0: 1, 1: 4, 2: 5}
    nodes.see([1, 4, 5, 2])  # there is no number for it
    assert nodes.available == {0: 1, 1: 4, 2: 5}
    assert nodes.see([4, 5, 2]) == [0]  # the node that had it is another
    assert nodes.available == {0: 2, 1: 4, 2: 5}


def test_a_node_that_was_seen_later_keeps_its_number_longer():
    nodes = Nodes(3)
    for online in ([1, 2, 3], [1, 3], [3], [3, 4]):
        nodes.see(online)
    assert nodes.available == {2: 3, 1: 4}


def test_numbers_survive_a_restart():
    nodes = Nodes(2)
    nodes.see([2**63 + 1, 5])
    again = Nodes(2)
    again.load_state_dict(nodes.state_dict())
    assert again.available == {}
    again.see([5, 2**63 + 1])
    assert again.available == {0: 2**63 + 1, 1: 5}
