"""What the paper reports, and its comparison with a run."""
