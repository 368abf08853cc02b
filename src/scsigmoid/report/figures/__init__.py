"""The paper's figures, from result files alone."""
