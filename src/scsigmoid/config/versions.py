"""Version of each rule's code. A rule runs again if its version changes.

Increase the version of a rule by one if its results change for the same inputs and settings. Do not
increase it for changes of speed, messages or names.
"""

#: Version by name of the rule in ``workflow/rules``. Rules that are not listed have version 1.
VERSIONS: dict[str, int] = {}


def version_setting(rule: str) -> dict[str, int]:
    """Return the version of a rule as a setting, or an empty mapping if it is 1."""
    return {"version": VERSIONS[rule]} if rule in VERSIONS else {}
