"""Tests of claims over the seeds."""
