"""Tables of a run, made from its result files."""
