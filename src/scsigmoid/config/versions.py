"""Versions of the code behind each rule, so that results of older code are made again.

Whoever changes the results of a rule for the same inputs and settings raises its number here by
one. The number becomes part of the settings that Snakemake compares. Changes that only affect
speed, messages or names do not raise it.
"""

#: Rules of ``workflow/rules`` whose number is not 1.
VERSIONS: dict[str, int] = {}


def version_of(rule: str) -> dict[str, int]:
    """Return the version of a rule as a setting, or nothing for the first version."""
    return {"version": VERSIONS[rule]} if rule in VERSIONS else {}
