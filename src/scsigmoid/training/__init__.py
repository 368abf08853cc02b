"""Training: batches of cells, the optimiser, the loop, checkpoints and the journal."""
