"""The paper: what it reports, and our tables, figures, claims and report beside it.

Everything here is made from result files and the configuration; nothing is measured.
"""
