"""The constants of an experiment in the papers' convergence bounds."""
