"""Trainers: jobs in, results out."""
