"""Plans, messages, compression, randomness, errors and files: for all parts.

Needs neither torch nor the package ``offbeat``.
"""
