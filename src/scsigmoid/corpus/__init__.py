"""Where cells come from: manifest, downloads, embedded cells, and the one reader of h5ad files."""
