"""Data from outside is never run as code or as a shell command."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Ways to unpickle that ruff's rules (S in pyproject.toml) do not report.
UNPICKLES = re.compile(
    r"allow_pickle=True|weights_only=False|^\s*(import|from) (dill|cloudpickle|joblib|marshal)\b",
    re.M,
)


def test_no_file_is_unpickled() -> None:
    sources = (ROOT / "src").rglob("*.py")
    assert [path for path in sources if UNPICKLES.search(path.read_text(encoding="utf-8"))] == []


def test_values_in_shell_commands_are_quoted() -> None:
    """Wildcards need no quotes, because only known names match. Resources are numbers."""
    unquoted = {
        f"{path.name}: {field}"
        for path in (ROOT / "workflow" / "rules").glob("*.smk")
        for text in re.findall(r"    shell:\n((?: {8}.*\n)+)", path.read_text(encoding="utf-8"))
        for field in re.findall(r"\{([^{}]+)\}", text)
        if not field.endswith(":q") and not field.startswith(("wildcards.", "resources."))
    }
    assert unquoted == set()
