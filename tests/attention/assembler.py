"""NVIDIA's assembler, ptxas, on compiled Triton kernels."""

import re
import subprocess
import tempfile
from pathlib import Path

from triton.backends.nvidia.compiler import get_ptxas


def assemble(kernel) -> str:
    """Return the report of ptxas on a compiled kernel."""
    ptx = kernel.asm["ptx"]
    target = re.search(r"\.target (sm_\w+)", ptx)[1]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        ptxas = get_ptxas(kernel.metadata.target.arch).path
        command = [ptxas, "-v", f"--gpu-name={target}", source, "-o", cubin]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    return process.stderr + process.stdout


def count_spilled_bytes(report: str) -> int:
    """Return the bytes of registers that a kernel spills to memory."""
    counts = re.findall(r"(\d+) bytes spill stores", report)
    assert counts, report
    return sum(map(int, counts))
