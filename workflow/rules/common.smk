"""The checked configuration and what the rules derive from it."""

import shlex
import sys
from pathlib import Path

BASE = Path(workflow.basedir)
SOURCE = str(BASE / "src")
sys.path.insert(0, SOURCE)
# Jobs import the package from here, whichever environment they run in; without conda or containers
# they run in the environment that Snakemake itself runs in.
SEARCH = f"export PYTHONPATH={shlex.quote(SOURCE)}; "
if not workflow.deployment_settings.deployment_method:
    SEARCH += f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
# Training also tells its rate and remaining time on the terminal; a cluster's job has none.
if workflow.remote_exec:
    SEARCH += "export SCSIGMOID_SILENT=1; "
shell.prefix(SEARCH)

from scsigmoid.config import check, local_files, plan
from scsigmoid.errors import UserError
from scsigmoid.files import write_text
from scsigmoid.report import registry
from scsigmoid.stale_lock import clear_stale_lock, note_run

if workflow.is_main_process and clear_stale_lock(".snakemake"):
    print("An earlier run was killed; its lock is removed.", file=sys.stderr)

try:
    # Snakemake has read these files by other rules: it takes the last of two equal keys, for example.
    for file in workflow.configfiles:
        check.read_yaml(file)
    CONFIG = check.load(BASE / "config.yaml", BASE / "workflow/presets", config)
except UserError as error:
    print(f"scsigmoid: {error}", file=sys.stderr)
    sys.exit(1)

RESULTS = CONFIG.results or f"results/{CONFIG.preset}"
# The whole configuration, for the jobs that read titles and labels, or how to download.  A parameter
# of theirs and no input: `onstart` writes it before any job; as an input, also an `ancient` one, it
# needs a rule that all jobs wait for, and results made before count as made from other inputs.  What
# makes a job run again stands in its `settings` alone.
STORED = f"{RESULTS}/config.yaml"
PLAN = plan.Plan(CONFIG)
TABLES, FIGURES = (registry.names(kind, PLAN) for kind in ("table", "figure"))
DOWNLOADED = CONFIG.corpus.source == "cellxgene"
# GPUs that a job asks for, and on each machine a job that trains.
GPUS = int(CONFIG.device != "cpu")
TRAINING_GPUS = GPUS * CONFIG.gpus
ENVIRONMENT = str(BASE / "envs/scsigmoid.yaml")


wildcard_constraints:
    part=r"\d{5}",
    dataset="|".join(PLAN.datasets),
    model="|".join([*CONFIG.models, *PLAN.study_runs]),
    after=r"(-step-\d{8})?",


def settings(*keys):
    """Return the named settings as JSON, or all settings without names."""
    return check.as_json(PLAN.settings(*keys))


def settings_of(rule):
    """Return a function of wildcards: the settings that affect a rule, as JSON.

    They are all that a job gets, and all that can make it run again.
    """
    return lambda wildcards: check.as_json(PLAN.settings_of(rule, wildcards.get("dataset")))


def result(pattern, **lists):
    """Paths under the results folder, the product of the lists filled in."""
    return expand(f"{RESULTS}/{pattern}", **lists)


def final_results():
    """Everything that a full run leaves for people."""
    return [
        f"{RESULTS}/report.html",
        *result("tables/{name}.csv", name=TABLES),
        *result("figures/{name}.png", name=FIGURES),
        *lock_file(),
    ]


def lock_file():
    """The lock of a corpus that was downloaded."""
    return result("corpus/lock.csv") if DOWNLOADED else []


def study_journals(wildcards):
    """Return the journals of a study's runs."""
    if not PLAN.study_runs:
        # An exception would print a traceback.
        sys.exit(
            "scsigmoid: error: the configuration has no study; add one, as in"
            " workflow/studies/arms.yaml"
        )
    return result("training/{model}/journal.csv", model=PLAN.study_runs)


def user_files(wildcards):
    """The user's own files: a changed file makes a new manifest."""
    if CONFIG.corpus.source == "local":
        return [
            str(path) for file in local_files.expand(CONFIG.corpus.local) for path in file.files
        ]
    if CONFIG.corpus.manifest:
        return [CONFIG.corpus.manifest]
    return []


def store_configuration():
    """Write STORED; an equal file stays as it is."""
    text = check.as_yaml(CONFIG)
    try:
        if not Path(STORED).is_file() or Path(STORED).read_text(encoding="utf-8") != text:
            write_text(STORED, text)
    except OSError as error:
        print(
            f"scsigmoid: error: {STORED}: cannot be written ({error.strerror}); set results to a "
            "folder that can",
            file=sys.stderr,
        )
        sys.exit(1)


def inputs_of(kind):
    """The inputs of a table or figure."""
    return lambda wildcards: result("{path}", path=registry.inputs(kind, wildcards.name, PLAN))


def printed_settings(kind):
    """The settings that a table or figure depends on."""
    return lambda wildcards: settings(*registry.settings(kind, wildcards.name, PLAN))


def caption_of(kind):
    """The caption of a table or figure, for Snakemake's report."""
    return lambda wildcards: registry.caption(kind, wildcards.name, PLAN)
