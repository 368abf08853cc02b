"""The corpus: manifest, downloads, embedded cells, and reading of h5ad files."""
