"""Training: division among processes, the optimizer, the loop, checkpoints and the journal."""
