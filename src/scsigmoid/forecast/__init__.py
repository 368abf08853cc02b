"""The cost of a configuration before anything runs: files, disk, hours of training, parameters."""
