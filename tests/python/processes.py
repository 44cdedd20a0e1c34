"""Programs in a separate process, for what a process can do only once."""

import subprocess
import sys
import textwrap

PREAMBLE = """
import torch, hindcast
torch.set_num_threads(1)
def backward():
    w = torch.randn(300, 300, requires_grad=True)
    w.sin().exp().tanh().sum().backward()
    return w.grad
"""


def python(program: str, expected_code: int = 0) -> str:
    """The program's output."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == expected_code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
