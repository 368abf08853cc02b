"""Speed benchmarks of attention kernels and of whole training steps."""
