"""A real Slurm on this machine, for tests: a controller, and two nodes with one simulated GPU each.

All files are in one folder. Ports are chosen among the free ports.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from waiting import wait_until

PROFILE = Path(__file__).parents[1] / "workflow" / "profiles" / "slurm" / "config.yaml"
NODES = 2
DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")

CONTROLLER = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=1
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=500
MinJobAge=3600
KillWait=5
JobRequeue=0
ReturnToService=2
"""


def profile_of(site: dict[str, Any]) -> str:
    """Return the text of the Slurm profile with a site's values at its top."""
    text = PROFILE.read_text(encoding="utf-8")
    for name, value in site.items():
        text, count = re.subn(rf'(?m)^(  - {name} = )("[^"]*"|\S+)', rf"\g<1>{value!r}", text)
        assert count == 1, name
    return text


def missing() -> str:
    """Return why Slurm cannot be started here, or an empty text."""
    absent = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)} not found); .ci/run installs it"
    return "" if os.geteuid() == 0 else "only root can start a Slurm for tests"


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Slurm:
    """A running cluster, whose files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        """Start the daemons and wait until the nodes are idle."""
        self.folder = folder
        # Folder of Slurm's commands for this cluster, to be first in PATH. They set SLURM_CONF,
        # which Snakemake's plugin removes inside jobs.
        self.commands = folder / "bin"
        self.daemons: list[subprocess.Popen[bytes]] = []
        (folder / "state").mkdir(parents=True)
        self.commands.mkdir()
        self._write_configuration()
        self._write_commands()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _write_configuration(self) -> None:
        host = socket.gethostname().partition(".")[0]
        controller, *ports = free_ports(1 + NODES)
        nodes, gpus = [], ["AutoDetect=off"]
        for number, port in enumerate(ports):
            device = self.folder / f"g{number}"
            os.mknod(device, 0o20666, os.makedev(1, 3))  # the device numbers of /dev/null
            nodes.append(
                f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                "CPUs=32 RealMemory=64000 Gres=gpu:1"
            )
            gpus.append(f"NodeName=n{number} Name=gpu File={device}")
        lines = [
            CONTROLLER.format(host=host, controller=controller, folder=self.folder),
            *nodes,
            "PartitionName=cpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=5",
            "PartitionName=gpu Nodes=ALL MaxTime=7-0 DefaultTime=5",
        ]
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "gres.conf").write_text("\n".join(gpus) + "\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def _write_commands(self) -> None:
        for name in COMMANDS:
            path = self.commands / name
            settings = f"SLURM_CONF={shlex.quote(str(self.folder / 'slurm.conf'))}"
            path.write_text(f'#!/bin/sh\n{settings} exec {shutil.which(name)} "$@"\n')
            path.chmod(0o755)

    def _start(self) -> None:
        folder = self.folder
        munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
        for name in ("socket", "pid-file", "log-file", "seed-file"):
            munge.append(f"--{name}={folder}/munge.{name.removesuffix('-file')}")
        self._run(munge)
        self._wait(lambda: (folder / "munge.socket").exists(), "munged")
        self._run(["slurmctld", "-D", "-f", f"{folder}/slurm.conf"])
        for number in range(NODES):
            self._run(["slurmd", "-D", "-N", f"n{number}", "-f", f"{folder}/slurm.conf"])
        self._wait(self._idle, "the nodes")

    def _idle(self) -> bool:
        states = self.ask("sinfo", "--noheader", "--Node", "--partition=cpu", "--format=%T")
        return states.split() == ["idle"] * NODES

    def _run(self, command: list[str]) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _wait(self, ready: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                logs = "\n".join(
                    path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log")
                )
                raise RuntimeError(f"Slurm: {what} did not start\n{logs}")
            time.sleep(0.1)

    def ask(self, command: str, *arguments: str) -> str:
        """Return what a command of Slurm prints, or an empty text if it fails."""
        process = subprocess.run(
            [self.commands / command, *arguments], capture_output=True, text=True
        )
        return process.stdout.strip() if process.returncode == 0 else ""

    def jobs(self) -> list[tuple[str, str, str]]:
        """Return number, comment (rule and wildcards) and state of all jobs, the oldest first."""
        lines = self.ask("squeue", "--states=all", "--noheader", "--format=%i|%k|%T").splitlines()
        jobs = [(number, *fields) for number, *fields in (line.split("|") for line in lines)]
        return sorted(jobs, key=lambda job: int(job[0]))

    def stop(self) -> None:
        """End all jobs, the daemons, and processes that jobs left behind.

        Jobs end first: they would outlive the daemons.
        """
        self.ask("scancel", "--user=root")  # also jobs that wait
        self.ask("scancel", "--user=root", "--signal=KILL", "--full")
        try:
            wait_until(lambda: not self.ask("squeue", "--noheader"), seconds=30)
        finally:
            self._stop_daemons()
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    if str(self.commands) in process.environ().get("PATH", ""):
                        process.kill()

    def _stop_daemons(self) -> None:
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
