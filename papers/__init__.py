"""The figures, tables and theorems of the papers, measured again.

This package is not part of the installed one.
"""
