"""Running a piece of code in a process of its own, with a mistake installed or with another hash seed."""

import os
import subprocess
import sys


def run_python(code: str, *, mutant: str = "", hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter; a mutant is installed before anything else is imported."""
    if mutant:
        code = f"from rota.sim.mutants import BY_NAME, install\ninstall(BY_NAME[{mutant!r}])\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
