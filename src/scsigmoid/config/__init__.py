"""Typed configuration: the schema (plain dataclasses) and the checks.

``schema`` needs nothing but Python, so that training and benchmarks can take their settings on a
machine that has only torch.  ``check`` reads the YAML files and words the errors.
"""
