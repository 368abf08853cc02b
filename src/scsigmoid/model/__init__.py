"""The encoder: its size, files, devices, batches, loss, and embeddings."""
