"""Forecast of a configuration's cost: files, disk space, hours of training, parameters."""
