"""Studies: many small runs of both arms, compared over learning rates, seeds and sizes."""
