"""Check the configuration, and define the constants and functions that the rules use."""

import os
import sys
from pathlib import Path

from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.settings.enums import Quietness


def put_first(variable, folder):
    """Put a folder first in an environment variable such as PATH, which jobs inherit.

    Empty entries, which mean the working folder, are removed.
    """
    folders = os.environ.get(variable, "").split(os.pathsep)
    os.environ[variable] = os.pathsep.join([str(folder), *filter(None, folders)])


def stop(message):
    """End Snakemake with a one-line error. Another exception would print a traceback."""
    sys.exit(f"scsigmoid: error: {message}")


def missing_module(error):
    """Return the message for a Python module that is not installed."""
    return (
        f"Python module {error.name} is missing. Install this version of scsigmoid next to Snakemake:"
        " pip install '.[workflow]' in a clone"
    )


DEPLOYMENT = {method.name for method in workflow.deployment_settings.deployment_method}
if "APPTAINER" in DEPLOYMENT:
    stop(
        "--sdm apptainer: no image is published. Build envs/Containerfile and run snakemake in it"
        " (docs/running.md), or use --sdm conda"
    )
if workflow.storage_settings.default_storage_provider is not None:
    stop(
        "--default-storage-provider: not supported, because checkpoints and downloads are not"
        " transferred; leave it out, and set results to a folder that all jobs share"
    )
# In a clone, Snakemake and all jobs import the package from here. A workflow that is deployed from
# a remote repository uses the package that is installed next to Snakemake.
SOURCE = Path(str(workflow.current_basedir)).parents[1] / "src"
if SOURCE.is_dir():
    sys.path.insert(0, str(SOURCE))
    put_first("PYTHONPATH", SOURCE)
elif "CONDA" in DEPLOYMENT:
    stop("--sdm conda: conda environments do not contain the package; use a clone as the module")
if not DEPLOYMENT:
    put_first("PATH", Path(sys.executable).parent)  # jobs run `python`
# Without this variable, `python -m` would import modules from the working folder, e.g. random.py.
# (`snakemake --lint` reports os.environ[...] = "1".)
os.environ.update({"PYTHONSAFEPATH": "1"})
# Each job prints a line on the terminal, and training prints its rate (SCSIGMOID_LINES). On a
# cluster, jobs print only to their logs (SCSIGMOID_SILENT).
OUTPUT_VARIABLE = "SCSIGMOID_SILENT" if workflow.remote_exec else "SCSIGMOID_LINES"
os.environ.update({OUTPUT_VARIABLE: "1"})


def hide_with_rules(record):
    """Let `quiet: rules` also hide lines that Snakemake prints before and after each job."""
    if str(record.msg).startswith(("Select jobs to execute", "Execute ", "Finished jobid")):
        record.quietness = Quietness.RULES
    return True


logger.addFilter(hide_with_rules)

try:
    import psutil

    from scsigmoid.config import check, combinations, local_files, plan, stored
    from scsigmoid.config.compared import compared, training_entries
    from scsigmoid.config.initial import initial_checksum, initial_path
    from scsigmoid.errors import UserError, first_few
    from scsigmoid.files import locked, sha256
    from scsigmoid.forecast.choices import choose
    from scsigmoid.report import registry
    from scsigmoid.config.stale_lock import clear_stale_lock, note_run, running_jobs
except ModuleNotFoundError as error:
    stop(missing_module(error))

if workflow.is_main_process and clear_stale_lock(".snakemake"):
    print("An earlier run was killed. Its lock is removed.", file=sys.stderr)

# Next to another run, a dry run would print "Error: Directory cannot be locked", and continue.
PersistenceBase.lock_warn_only = PersistenceBase.noop

IS_MODULE = not workflow.modifier.is_main_snakefile()
try:
    if not IS_MODULE:
        # Snakemake has read these files, but it accepts errors such as duplicate keys.
        for file in workflow.configfiles:
            check.read_yaml(file)
    CONFIG = check.load(overrides=config, choose=choose)
except UserError as error:
    stop(error)
except OSError as error:  # for example in a folder of another user
    problem = f"{error.filename}: {error.strerror}" if error.filename else error
    stop(f"{problem}; change its permissions, or choose another place")
except ModuleNotFoundError as error:  # of the modules that read own files
    stop(missing_module(error))

# Snakemake compares paths as text: with `./results`, it would not find the records of `results`.
RESULTS = os.path.normpath(CONFIG.results or f"results/{CONFIG.preset}")
PLAN = plan.Plan(CONFIG)
CHECKSUM = stored.checksum(CONFIG.model_dump())
if workflow.is_main_process:
    for setting, choice in CONFIG.choices.items():
        print(f"{setting} = {choice}", file=sys.stderr)
TABLES, FIGURES = (registry.names(kind, PLAN) for kind in ("table", "figure"))
LOCK_FILE = [f"{RESULTS}/corpus/lock.csv"] if CONFIG.corpus.source == "cellxgene" else []
# GPUs of an evaluation or benchmark, and of training on each of its nodes. 0 for the device cpu.
GPUS = int(CONFIG.device != "cpu")
TRAINING_GPUS = GPUS * CONFIG.gpus
# For each GPU, training has a process and the threads that load its batches.
TRAINING_THREADS = (
    TRAINING_GPUS * (1 + CONFIG.training.execution.workers) or CONFIG.training.execution.threads
)
ENVIRONMENT = "../../envs/scsigmoid.yaml"


def modified(path):
    """Return the path of an output, with the prefix of a module."""
    return str(workflow.modifier.path_modifier.modify(f"{RESULTS}/{path}"))


wildcard_constraints:
    part=r"\d{5}",
    dataset="|".join(PLAN.datasets),
    model="|".join(PLAN.trained),
    snapshot=r"(-step-\d{8})?",  # suffix of a snapshot's file, or empty for the final model


def read(*names, run=None):
    """Return a function for `params`: it returns the values of settings that a job reads, as JSON.

    Snakemake compares them with those of the last run, and runs the job again if they differ. Jobs
    themselves read the stored configuration. Names are dotted, and may contain wildcards, as in
    `datasets.{dataset}`. A section has only its own settings, so sections in it are named, too.
    Settings at their default in the schema are left out (`scsigmoid.config.compared`). `run` is a
    model or a run of a study. Its own values then replace the general ones (`Plan.run_config`).
    """

    def settings(wildcards):
        values = dict(wildcards.items())
        config = PLAN.run_config(run.format(**values)) if run else CONFIG
        return check.as_json(compared(config, *[name.format(**values) for name in names]))

    return settings


def read_by_entry(kind):
    """Return a function for `params`: `read` with the settings of a table or figure."""
    return lambda wildcards: read(*registry.find(kind, wildcards.name, PLAN).settings)(wildcards)


def result(pattern, **lists):
    """Return paths in the results folder, for all combinations of values of the wildcards.

    `lists` contains the values of each wildcard of `pattern`.
    """
    return expand(f"{RESULTS}/{pattern}", **lists)
