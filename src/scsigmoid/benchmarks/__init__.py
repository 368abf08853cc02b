"""Speed: the attention kernels alone, and whole training steps."""
