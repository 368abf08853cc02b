"""The result files of a run, and the numbers that are derived from several of them."""
