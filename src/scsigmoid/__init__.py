"""scsigmoid: sigmoid attention for single-cell foundation models, as a reproducible experiment.

The stages are subpackages, in the order in which data flows: ``corpus``, ``tokens``,
``attention``, ``model``, ``training``, ``evaluation``, ``benchmarks``, ``paper``.
"""

__version__ = "0.1.0"
