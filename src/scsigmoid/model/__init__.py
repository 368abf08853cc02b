"""The encoder, its masked-language-model objective and its size."""
