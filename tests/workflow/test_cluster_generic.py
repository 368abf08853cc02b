"""The profile for clusters other than Slurm, with scripts in place of the commands of PBS."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("snakemake_executor_plugin_cluster_generic")

# Records the options of a job, and runs its script. The first job is killed.
QSUB = """#!/bin/sh
cd "{folder}" || exit 1
number=$(ls | grep -c options)
echo "$@" > $number.options
for script; do :; done
(
  [ $number = 0 ] && kill -9 $(sh -c 'echo $PPID')
  sh "$script" > $number.log 2>&1
  echo $? > $number.code
) >/dev/null 2>&1 &
echo $! > $number.pid
echo $number
"""
QSTAT = """#!/bin/sh
[ "$1 $2" = "-x -f" ] || exit 1
code=$(cat "{folder}/$3.code" 2>/dev/null)
if [ -n "$code" ] || ! kill -0 "$(cat "{folder}/$3.pid")" 2>/dev/null; then
  printf '    job_state = F\\n    Exit_status = %s\\n' "${{code:-265}}"
else
  printf '    job_state = R\\n'
fi
"""


def test_a_killed_job_is_submitted_again_with_more_memory(
    make_project: Callable[..., Any], tiny: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    for name, text in (("qsub", QSUB), ("qstat", QSTAT), ("qdel", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text.format(folder=cluster))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    project = make_project(tiny)
    profile = ("--workflow-profile", "workflow/profiles/cluster-generic")
    waits = ("--latency-wait", "1", "--seconds-between-status-checks", "1")
    project.run("results/demo/corpus/manifest.csv", *profile, *waits)
    assert (project.folder / "results/demo/corpus/manifest.csv").is_file()
    options = [path.read_text() for path in sorted(cluster.glob("*.options"))]
    pattern = r"ncpus=(\d+):mem=(\d+)mb:ngpus=(\d+) .*walltime=(\d+)"
    requested = [re.findall(pattern, text) for text in options]
    assert requested == [[("1", "4000", "0", "240")], [("1", "8000", "0", "480")]]
