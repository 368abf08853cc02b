"""Nothing that is read from outside can run, in the code and in the workflow's shells."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scsigmoid.config.check import load
from scsigmoid.errors import UserError

ROOT = Path(__file__).parents[1]
# What runs code that it reads.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "os.system", "os.popen", "pd.read_pickle", "pandas.read_pickle"}


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or attribute; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def given(call: ast.Call, name: str) -> object:
    """The constant that a call gives an argument by name; ``None`` without it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return getattr(keyword.value, "value", "not a constant")
    return None


def dangers(source: str) -> Iterator[str]:
    """What in a module may run what is read from outside."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if (
                name in CALLS
                or (name.endswith("torch.load") and given(node, "weights_only") is not True)
                or (name.startswith("yaml.") and "load" in name and "safe" not in name)
                or given(node, "allow_pickle") not in (None, False)
                or given(node, "shell") not in (None, False)
            ):
                yield ast.unparse(node)


def test_no_code_runs_what_it_reads() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {danger}"
        for path in (ROOT / "src").rglob("*.py")
        for danger in dangers(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "subprocess.run(text, shell=True)",
        "eval(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(dangers(source))


def test_shells_get_values_quoted() -> None:
    """But for wildcards, which the workflow restricts to known names, and counts."""
    unquoted = {
        f"{path.name}: {field}"
        for path in (ROOT / "workflow" / "rules").glob("*.smk")
        for text in re.findall(r"    shell:\n((?: {8}.*\n)+)", path.read_text(encoding="utf-8"))
        for field in re.findall(r"\{([^{}]+)\}", text)
        if not field.endswith(":q") and not field.startswith(("wildcards.", "resources."))
    }
    assert unquoted == set()


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/b", "a b", "a;b", "$(id)", "a'b", 'a"b', "<script>", "a\nb", "", "x" * 10_000],
)
@pytest.mark.parametrize("kind", ["datasets", "models"])
def test_names_that_become_paths_are_refused(kind: str, name: str) -> None:
    value = {
        "datasets": {"title": "t", "description": "d"},
        "models": {"attention": "sigmoid", "context": 128, "training": {}},
    }[kind]
    with pytest.raises(UserError) as error:
        load(overrides={kind: {name: value}})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
