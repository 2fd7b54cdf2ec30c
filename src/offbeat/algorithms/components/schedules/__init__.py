"""Schedules: which clients work, and when a buffer may close."""
