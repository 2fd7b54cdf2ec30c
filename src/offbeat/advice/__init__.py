"""Advice on algorithms for an experiment's clients, without training."""
