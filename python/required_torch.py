"""The wheel requires the release of torch that it is built with: pyproject.toml calls this while the wheel is built."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, list[str]]:
    try:
        release = ".".join(version("torch").split(".")[:2])
    except PackageNotFoundError:
        raise RuntimeError("hindcast is built with torch, which is not installed. Install the torch that it is to be for.") from None
    return {"dependencies": [f"torch=={release}.*"]}
