"""What a configuration will cost, before anything runs: files, disk, GPU-hours, wall time."""
