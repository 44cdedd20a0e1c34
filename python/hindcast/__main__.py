"""``python -m hindcast script.py``: docs/python.md, "Try it without a change"."""

from ._run_script import main

main()
