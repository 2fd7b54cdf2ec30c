"""Differential privacy: accounting, correlated noise, and what a schedule allows."""
