"""Client devices: speeds, links and losses.

A new distribution of speeds or bandwidths is a function in ``distributions``, a new format of bandwidth traces one in
``bandwidth_traces``.
"""
