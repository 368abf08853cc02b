"""The paper's tables, from result files alone."""
