"""Studies: many small runs of two arms, sigmoid and softmax attention, which are compared."""
