"""The Python interface: load a trained model, tokenize, embed and annotate your own cells."""
