"""``python -m hindcast.bench``: PyTorch's engine alternating with others: hindcast, and with ``--peers`` PyTorch's compiled autograd."""
