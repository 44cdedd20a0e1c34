"""``python -m hindcast.bench``: PyTorch's engine and others by turns: hindcast, with ``--peers`` PyTorch's compiled autograd."""
