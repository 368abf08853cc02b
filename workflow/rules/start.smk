"""What happens before the first job: locks, the stored configuration, signals and jobs of earlier runs."""

import atexit
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from snakemake.dag import DAG
from snakemake.persistence import PersistenceBase


def stored_configuration(wildcards, output):
    """Return the path of the stored configuration, which jobs read, and its expected checksum.

    Snakemake does not compare this parameter, because its function has the argument `output`: jobs
    are rerun only if the settings that they `read` change. `onstart` writes the file. If the
    workflow is a module, `onstart` does not run, so this function writes the file before jobs
    start. A job stops if another run has replaced the file, for example after this Snakemake was
    killed while its jobs waited on a cluster.
    """
    prefix = output[0].partition(RESULTS)[0]  # the paths of a module may have a prefix
    path = f"{prefix}{RESULTS}/config.yaml"
    # The workflow has an `executor_plugin` only if it runs jobs, unlike for --lint.
    if IS_MODULE and workflow.is_main_process and workflow.executor_plugin:
        if not (workflow.dryrun or workflow.touch):
            store_configuration(path, any(workflow.dag.needrun_jobs()))
    return [path, "--checksum", CHECKSUM]


@cache
def store_configuration(path, is_planned=True):
    """Write the configuration to a file, unless it is a file of the user (`stored.store`).

    A module writes it once before Snakemake knows which jobs run (`is_planned` is False), and once
    when the first of them starts.
    """
    try:
        folder = path.rpartition("/")[0]
        lock_results(folder)
        check_outputs(folder, workflow.dag.needrun_jobs())
        stored.store(CONFIG, Path(path), workflow.configfiles)
    except UserError as error:
        stop(error)
    except OSError as error:
        # The lock may be a file of another user.
        place = error.filename if os.path.isfile(error.filename or "") else path
        stop(f"{place}: cannot be written ({error.strerror}); set results to a writable folder")


@cache
def lock_results(folder):
    """Lock a results folder. Raise a UserError if another run or local jobs of a killed run use it.

    Snakemake locks only its working folder, and each run that ends removes the locks of all runs.
    """
    lock = locked(f"{folder}/.workflow", "running the workflow")
    lock.__enter__()
    if jobs := running_jobs(f"{folder}/config.yaml"):
        raise UserError(
            f"{folder}: jobs of a killed run still write to it; wait for them or stop them (kill"
            f" {' '.join(map(str, jobs))}), and run again"
        )
    return lock  # the cache keeps the lock until this process ends


def check_outputs(results, jobs, *, are_made_again=True):
    """Raise a UserError if a file or folder that Snakemake will delete contains a user's file.

    Before a job runs, Snakemake deletes its outputs: files, and folders with all their files.
    """
    paths = [Path(path) for job in jobs for path in job.output]
    # Links to files of the user are outputs, too, so only the links of folders are followed.
    files = [file.parent.resolve() / file.name for file in input_files()]
    inputs = {path for file in files for path in (file, *file.parents)}
    for path in paths if not workflow.touch else []:
        message = ""
        if other := stored.find_other_files(path, results):
            message = (
                f"{path}: contains files that no job wrote ({first_few(other)}), and would be"
                " deleted; move these files, and run again"
            )
        # The lock is read before it is written again, with the same rows.
        elif are_made_again and path.name == "lock.csv":
            continue
        elif path.parent.resolve() / path.name in inputs:
            message = (
                f"{path}: is an input in the configuration, or contains one, and would be deleted"
                "; move the input, and correct its path in the configuration"
            )
        if message:
            if IS_MODULE:  # Snakemake has started, and would not print the error
                print(f"scsigmoid: error: {message}", file=sys.stderr)
            raise UserError(message)


async def delete_outputs(dag, only_temp=False, dryrun=False, delete=DAG.clean):
    """Delete outputs (`--delete-all-output`), unless a run uses them or they contain user's files."""
    try:
        check_outputs(RESULTS, dag.jobs, are_made_again=False)
        if not dryrun and os.path.isdir(RESULTS):  # the lock would make a missing folder
            lock_results(RESULTS)
        await delete(dag, only_temp, dryrun)
    except UserError as error:
        stop(error)
    except OSError as error:
        place = error.filename or RESULTS
        stop(f"{place}: cannot be deleted or locked ({error.strerror}); change its permissions")


if not IS_MODULE:
    DAG.clean = delete_outputs


def warn_of_earlier_jobs():
    """Name the jobs of an earlier run, which was killed, that are still on the cluster."""
    jobs = {}
    for job in workflow.dag.needrun_jobs():
        for number in workflow.persistence.external_jobids(job):
            jobs.setdefault(number, f"{number} ({' '.join([job.rule.name, *job.wildcards])})")
    if jobs:
        command = ["squeue", "--me", "--noheader", "--states=PD,R,S,CG", "--format=%i"]
        with suppress(OSError):  # not Slurm
            queue = subprocess.run(command, capture_output=True, text=True, check=False)
            if queue.returncode == 0:
                jobs = {number: jobs[number] for number in queue.stdout.split() if number in jobs}
    if jobs:
        print(
            "scsigmoid: warning: jobs of an earlier run may still run and write the same files:"
            f" {', '.join(jobs.values())}. Cancel them, or wait for them and run again",
            file=sys.stderr,
        )


def pass_on_interrupts():
    """Stop jobs if only Snakemake receives SIGINT (`kill -INT`), as Ctrl-C stops them.

    Otherwise, Snakemake would wait until the jobs end. Ctrl-C reaches all processes, but a second
    SIGINT would stop training without a checkpoint, so jobs must receive the signal once.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    # A process that ends when Snakemake closes its input, or by a SIGINT that all processes receive.
    witness = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(witness.communicate)

    def interrupt(number, frame):
        try:
            witness.wait(timeout=1)
        except subprocess.TimeoutExpired:
            for process in psutil.Process().children(recursive=True):
                # Processes of other groups get the signal from torchrun or srun, as after Ctrl-C.
                with suppress(ProcessLookupError):
                    if process.pid != witness.pid and os.getpgid(process.pid) == os.getpgrp():
                        os.kill(process.pid, signal.SIGINT)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def record_in_job():
    """Let this job of a cluster record its settings and its id in `.snakemake`.

    By default, only the Snakemake that submits the job writes the record when the job ends. If it
    was killed, the record would be missing, and later changes of settings would be ignored. Jobs
    would also replace the id under which they were submitted by none.
    """
    started, finished = PersistenceBase.started, PersistenceBase.finished

    def set_option(**option):
        workflow.remote_execution_settings = replace(workflow.remote_execution_settings, **option)

    def started_with_id(self, job, external_jobid=None):
        started(self, job, external_jobid or next(iter(self.external_jobids(job)), None))

    async def finished_with_record(self, job):
        # Snakemake calls this for failed jobs, too. Training that Slurm has requeued keeps its id.
        if not all(os.path.exists(path) for path in job.output):
            return
        # With this option, jobs write their own records. It must not affect the scheduler.
        set_option(immediate_submit=True)
        try:
            await finished(self, job)
        finally:
            set_option(immediate_submit=False)

    PersistenceBase.started = started_with_id
    PersistenceBase.finished = finished_with_record


if workflow.remote_exec:
    record_in_job()
