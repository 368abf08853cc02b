"""Studies: many small runs of both arms, their curves and what they say."""
