"""Training: batches of cells, the optimizer, the loop, checkpoints and the journal."""
