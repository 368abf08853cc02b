"""Evaluation of trained models, as defined in the paper's appendix "Evaluation Metrics".

Each stage reads the files of the previous stage and writes its own files.
"""
