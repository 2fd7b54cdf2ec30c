"""Statistical tests over the seeds."""
