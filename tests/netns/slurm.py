"""A SLURM of this machine alone: two nodes that are both this host, everything in one folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
CONFIG = """
ClusterName=nodrop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=10
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=1000
PartitionName=bench Nodes=n[1-2] Default=YES State=UP MaxTime=INFINITE
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def says(self, *command: str) -> str:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=30,
            check=True,
        ).stdout

    def jobs(self) -> Sequence[str]:
        return self.says("squeue", "--noheader", "--format", "%i").split()


def lacks() -> str:
    """Programs that are not here."""
    path = os.environ["PATH"] + os.pathsep + "/usr/sbin"
    return " ".join(one for one in PROGRAMS if shutil.which(one, path=path) is None)


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    slurm = Slurm(folder)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    text = CONFIG.format(host=host, folder=folder, ports=_free_ports(3), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    munge = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
    files = [f"--{option}={folder}/munge.{name}" for option, name in munge.items()]
    commands = [
        ["munged", "--foreground", "--force", f"--seed-file={folder}/munge.seed", *files],
        ["slurmctld", "-D", "-i"],
        ["slurmd", "-D", "-N", "n1"],
        ["slurmd", "-D", "-N", "n2"],
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "log").open("ab") as log:
            for command in commands:
                environment = {**os.environ, **slurm.environment}
                environment["PATH"] += f"{os.pathsep}/usr/sbin"
                processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
                )
        until = time.monotonic() + 60
        while _idle(slurm) < 2:
            assert time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(0.1)
        yield slurm
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=30)


def _idle(slurm: Slurm) -> int:
    """Nodes; none while slurmctld does not answer yet."""
    try:
        return slurm.says("sinfo", "--noheader", "-N", "--format", "%T").split().count("idle")
    except subprocess.CalledProcessError:
        return 0


def _free_ports(count: int) -> Sequence[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
