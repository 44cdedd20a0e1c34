"""Programs in a process of their own, for what one process can do but once."""

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
    """What the program prints."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == expected_code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
