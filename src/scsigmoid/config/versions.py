"""Version of each rule's code. Snakemake compares it like a setting, and reruns older results.

Raise the number of a rule by one if its results change for the same inputs and settings, but not
for changes of speed, messages or names.
"""

#: Rules of ``workflow/rules`` whose number is not 1.
VERSIONS: dict[str, int] = {}


def version_of(rule: str) -> dict[str, int]:
    """Return the version of a rule as a setting, or nothing for the first version."""
    return {"version": VERSIONS[rule]} if rule in VERSIONS else {}
