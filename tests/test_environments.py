"""Conda environment, container, pinned requirements and versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packages import dependencies
from packaging.requirements import Requirement
from packaging.version import Version

from scsigmoid import __version__

ROOT = Path(__file__).parents[1]


JOBLESS = {"snakemake", "psutil"}  # packages that start jobs. Jobs do not need them.


def pinned() -> dict[str, tuple[Version, int]]:
    """Return versions and numbers of hashes in ``envs/requirements.txt``."""
    text = (ROOT / "envs" / "requirements.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^([a-z0-9._-]+)==([^\s;]+)(.*)", text, re.MULTILINE)
    return {name: (Version(version), rest.count("--hash=sha256:")) for name, version, rest in lines}


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.yaml")), ids=lambda path: path.name)
def test_conda_environments_have_the_projects_bounds(path: Path) -> None:
    environment = yaml.safe_load(path.read_text(encoding="utf-8"))
    *conda, extra = environment["dependencies"]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert [name.split()[0] for name in conda] == ["python", "pip"]
    bounds = {Requirement(text).name: Requirement(text).specifier for text in extra["pip"]}
    needed = dependencies("workflow")
    assert bounds == {name: needed[name].specifier for name in needed.keys() - JOBLESS}


def test_pinned_versions_are_allowed() -> None:
    versions = pinned()
    for name, requirement in dependencies("workflow").items():
        version, _ = versions[name]
        assert requirement.specifier.contains(version.public), name
    assert all(hashes for _, hashes in versions.values())
    text = (ROOT / "envs" / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "+cpu" not in text
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    assert re.findall(r"of the (\d+) pinned", page) == [str(len(versions))]


def test_the_container_is_pinned_and_has_a_user() -> None:
    text = (ROOT / "envs" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if re.match("[A-Z]+ ", line)]
    names = [name for name, _ in steps]
    assert names[0] == "FROM"
    assert re.search(r"cuda:\d+\.\d+\.\d+-runtime", steps[0][1])
    user = names.index("USER")
    assert int(steps[user][1]) > 0
    assert names.index("ENTRYPOINT") > user
    installs = [words for name, words in steps if name == "RUN" and "pip install" in words]
    assert all("--require-hashes" in words or "--no-deps" in words for words in installs)
    for name, words in steps:
        if name == "COPY":
            sources = [word for word in words.split()[:-1] if not word.startswith("--")]
            assert all((ROOT / source).exists() for source in sources), words


def test_the_version_is_the_same_everywhere() -> None:
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("CITATION.cff", "CHANGELOG.md", "docs/releasing.md")
    }
    place = r'(?:version: "|scsigmoid:|\bv|==|It is )(\d+\.\d+\.\d+)'
    of_release = re.findall(place, texts["docs/releasing.md"])
    found = {
        *of_release,
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
        yaml.safe_load(texts["CITATION.cff"])["version"],
        next(re.finditer(r"^## (\d[\d.]*)", texts["CHANGELOG.md"], re.MULTILINE))[1],
    }
    assert found == {__version__}
    assert len(of_release) == 11
