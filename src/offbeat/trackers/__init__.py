"""Experiment trackers that runs are sent to: W&B, MLflow, TensorBoard, trackio."""
