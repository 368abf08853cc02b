"""Training again: models whose settings differ from those of their file, and their checkpoints."""

import os
import sys
from functools import cache
from pathlib import Path

from snakemake.io import IOFile

MODEL_FILES = {name: modified(f"training/{name}/model.safetensors") for name in PLAN.trained}
OUTDATED = set()  # model files that are trained again, because their settings differ


@cache
def warn_of_missing_records(results):
    """Name the changed settings of a results folder that was renamed or copied without records."""
    if changed := stored.changed_settings(CONFIG, results / "config.yaml"):
        print(
            f"scsigmoid: warning: {results}: .snakemake has no record of its files (renamed, copied,"
            " or made in another folder), so they are not made again for settings that differ from"
            f" {results}/config.yaml: {', '.join(changed)}. To record the settings of the files,"
            " first run `snakemake --touch --forceall` with the old settings",
            file=sys.stderr,
        )


@cache
def find_outdated(model):
    """Return no inputs, but train a finished model again if its file states other settings.

    Snakemake compares settings with its own records. A record is missing or older than the model if
    Snakemake was killed while the job ran, or if the results were copied without `.snakemake`.
    """
    path = MODEL_FILES[model]
    if workflow.is_main_process and not workflow.touch:
        if os.path.exists(path) and not workflow.persistence.metadata(IOFile(path)):
            warn_of_missing_records(Path(path).parents[2])
        if changed := PLAN.changed_settings(model, path):
            message = f"{path}: trained again, because settings differ: {'; '.join(changed)}"
            print(message, file=sys.stderr)
            OUTDATED.add(path)
            workflow.dag.forcefiles.add(path)  # unlike forcerun, this does not add a target
    return []


def remove_old_checkpoints():
    """Remove the checkpoints of finished models that are trained again from the beginning.

    These are models whose training is forced (-R train) or whose files were deleted. Interrupted
    runs (without a file `finished`, which contains the number of steps), runs without a journal and
    runs with changed settings keep their checkpoints. Training decides whether it can continue.
    """
    if workflow.touch:
        return
    for job in workflow.dag.needrun_jobs():
        if job.rule.name != "train":
            continue
        model = job.output.model
        is_forced = workflow.dag.reason(job).forced and model not in OUTDATED
        folder = Path(model).parent / "checkpoints"
        finished = folder / "finished"
        steps = PLAN.run_config(job.wildcards.model).training.steps
        if finished.is_file():
            is_complete = finished.read_bytes() == f"{steps}\n".encode()
        else:  # an earlier run may have removed it, see below
            is_complete = os.path.exists(model)
        if not is_complete:
            continue
        # Snakemake deletes the model before the job runs. If the job then ends before training
        # starts, the next run must not take the model for one that the user deleted.
        finished.unlink(missing_ok=True)
        if is_forced or not os.path.exists(model):
            step = "step-" + 8 * "[0-9]"
            for path in (*folder.glob(f"{step}.pt"), *folder.glob(f"{step}.sha256")):
                path.unlink()
