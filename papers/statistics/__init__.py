"""Statistical tests of claims over the seeds."""
