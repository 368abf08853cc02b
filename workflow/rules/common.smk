"""The checked configuration, and functions of the rules."""

import shlex
import sys
from pathlib import Path

BASE = Path(workflow.basedir)
SOURCE = str(BASE / "src")
sys.path.insert(0, SOURCE)
# Jobs import the package from here in every environment. Without conda or containers, they run in
# the environment of Snakemake.
SEARCH = f"export PYTHONPATH={shlex.quote(SOURCE)}; "
if not workflow.deployment_settings.deployment_method:
    SEARCH += f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
# Training prints its rate and remaining time on the terminal, but jobs of a cluster have none.
if workflow.remote_exec:
    SEARCH += "export SCSIGMOID_SILENT=1; "
shell.prefix(SEARCH)

from scsigmoid.config import check, local_files, plan
from scsigmoid.errors import UserError
from scsigmoid.files import write_text
from scsigmoid.report import registry
from scsigmoid.stale_lock import clear_stale_lock, note_run

if workflow.is_main_process and clear_stale_lock(".snakemake"):
    print("An earlier run was killed. Its lock is removed.", file=sys.stderr)

try:
    # Snakemake has already read these files, but it accepts duplicate keys, for example.
    for file in workflow.configfiles:
        check.read_yaml(file)
    CONFIG = check.load(BASE / "config.yaml", BASE / "workflow/presets", config)
except UserError as error:
    print(f"scsigmoid: {error}", file=sys.stderr)
    sys.exit(1)

RESULTS = CONFIG.results or f"results/{CONFIG.preset}"
# The whole configuration, for jobs that read titles, labels or settings of downloads. It is passed
# in `params`, not `input`, because `onstart` writes it: an input needs a rule that all jobs wait for.
# Only a change of a job's `settings` makes it run again.
STORED = f"{RESULTS}/config.yaml"
PLAN = plan.Plan(CONFIG)
TABLES, FIGURES = (registry.names(kind, PLAN) for kind in ("table", "figure"))
DOWNLOADED = CONFIG.corpus.source == "cellxgene"
# GPUs of a job, and of a training job on each machine.
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
    """Return a function of wildcards: the settings that affect a rule, as JSON."""
    return lambda wildcards: check.as_json(PLAN.settings_of(rule, wildcards.get("dataset")))


def result(pattern, **lists):
    """Return paths in the results folder: the pattern with all combinations of the lists."""
    return expand(f"{RESULTS}/{pattern}", **lists)


def final_results():
    """Return the files of a full run that are meant for people."""
    return [
        f"{RESULTS}/report.html",
        *result("tables/{name}.csv", name=TABLES),
        *result("figures/{name}.png", name=FIGURES),
        *lock_file(),
    ]


def lock_file():
    """Return the lock file, if the corpus is downloaded."""
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
    """Return the user's own files. If one changes, the manifest is made again."""
    if CONFIG.corpus.source == "local":
        return [
            str(path) for file in local_files.expand(CONFIG.corpus.local) for path in file.files
        ]
    if CONFIG.corpus.manifest:
        return [CONFIG.corpus.manifest]
    return []


def store_configuration():
    """Write STORED, unless it is already equal."""
    text = check.as_yaml(CONFIG)
    try:
        if not Path(STORED).is_file() or Path(STORED).read_text(encoding="utf-8") != text:
            write_text(STORED, text)
    except OSError as error:
        print(
            f"scsigmoid: error: {STORED}: cannot be written ({error.strerror}); set results to a "
            "writable folder",
            file=sys.stderr,
        )
        sys.exit(1)


def inputs_of(kind):
    """Return a function of wildcards: the inputs of a table or figure."""
    return lambda wildcards: result("{path}", path=registry.inputs(kind, wildcards.name, PLAN))


def printed_settings(kind):
    """Return a function of wildcards: the settings that a table or figure prints."""
    return lambda wildcards: settings(*registry.settings(kind, wildcards.name, PLAN))


def caption_of(kind):
    """Return a function of wildcards: the caption of a table or figure."""
    return lambda wildcards: registry.caption(kind, wildcards.name, PLAN)
