"""The uploads that a server recognises when they come again."""

from offbeat.service.updates.digests import Digests


def test_the_last_upload_and_the_last_counted_one_are_known():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    digests.add(3, 1, "b", counted=True)
    digests.add(3, 2, "c", counted=False)
    digests.add(3, 3, "d", counted=False)
    digests.add(5, 0, "e", counted=False)
    for known in (digests, Digests(digests.entries())):
        assert [known.get(3, visit) for visit in range(4)] == [None, "b", None, "d"]
        assert known.get(5, 0) == "e"
        assert known.get(4, 0) is None


def test_a_counted_upload_is_the_last_counted_one_after_a_restart_too():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    again = Digests(digests.entries())
    again.add(3, 1, "b", counted=False)
    assert (again.get(3, 0), again.get(3, 1)) == ("a", "b")
