"""Evaluation of trained models: embeddings, validation loss, scIB metrics, MMD and UMAP.

Each stage reads the files of the stage before it and writes its own; the definitions follow the
paper's appendix "Evaluation Metrics".
"""
