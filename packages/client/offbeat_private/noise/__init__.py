"""Differential privacy: correlated noise, its rows, and what a schedule allows."""
