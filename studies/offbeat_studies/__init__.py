"""Studies with Offbeat: the papers' experiments, a benchmark, measured bounds.

The commands ``offbeat papers``, ``offbeat benchmark`` and ``offbeat theory`` are those of this package.
"""
