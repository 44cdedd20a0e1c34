"""``python -m hindcast.bench``: PyTorch's engine and hindcast's, interleaved in one process."""
