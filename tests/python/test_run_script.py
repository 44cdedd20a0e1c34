"""``python -m hindcast``: a script sees the same as under ``python``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PREAMBLE = """
import sys
import torch

torch.set_num_threads(1)

def train(steps=20):
    for _ in range(steps):
        x = torch.linspace(0, 1, 6, requires_grad=True)
        x.sin().sum().backward()
        assert torch.equal(x.grad, x.detach().cos())
"""


class Ended:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.taken_over = [int(count) for count in re.findall(r"taken over +(\d+)", self.err)]
        self.on_pytorchs = [int(count) for count in re.findall(r"stock engine +(\d+)", self.err)]


def run_python(*arguments, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd, env={**os.environ, **environment}
    )
    return Ended(done)


@pytest.fixture
def run(tmp_path):
    """Runs a program as a script under hindcast; ``options`` precede it, ``arguments`` follow it."""

    def run(program, *arguments, options=("--compiler", "eager"), preamble=PREAMBLE, **environment):
        (tmp_path / "script.py").write_text(preamble + program)
        return run_python("-m", "hindcast", *options, "script.py", *arguments, cwd=tmp_path, **environment)

    return run


def test_all_threads_are_taken_over_and_the_report_comes_last(run):
    ended = run(
        """
import threading
thread = threading.Thread(target=train)
thread.start(); thread.join()
train()
print("done", file=sys.stderr)
"""
    )
    assert ended.code == 0, ended.err
    assert ended.taken_over == [40]
    assert re.match(r"done\nhindcast, process \d+:\nbackwards\n", ended.err)


def test_threads_that_python_did_not_make_through_threading(run):
    ended = run(
        """
import _thread
done = _thread.allocate_lock()
done.acquire()
def work():
    train(); done.release()
_thread.start_new_thread(work, ())
done.acquire()
"""
    )
    assert ended.code == 0, ended.err
    assert ended.taken_over == [20]


WHAT_IT_SEES = """
import sys, __main__
class Kept: pass
if __name__ == "__main__":
    import json, pickle
    assert type(pickle.loads(pickle.dumps(Kept()))) is Kept and __main__.Kept is Kept
    names = sorted(name for name in globals() if name not in ("json", "pickle"))
    print(json.dumps([names, __name__, __file__, str(__spec__ and __spec__.name), str(__package__), type(__loader__).__name__,
                      str(__doc__), sys.argv, [path for path in sys.path], type(__builtins__).__name__]))
"""


@pytest.mark.parametrize("arguments", [(), ("--help", "-m", "x", "--compiler")])
def test_a_script_sees_what_it_sees_under_python(run, tmp_path, arguments):
    ended = run(WHAT_IT_SEES, *arguments, preamble="")
    plain = run_python("script.py", *arguments, cwd=tmp_path)
    assert ended.code == plain.code == 0, ended.err
    assert ended.out == plain.out


def test_a_module_sees_what_it_sees_under_python(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("")
    (package / "__main__.py").write_text("from . import other\n" + WHAT_IT_SEES)
    (package / "program.py").write_text(WHAT_IT_SEES)
    for module in ("pack", "pack.program"):
        ended = run_python("-m", "hindcast", "-m", module, "a", "-m", "b", cwd=tmp_path)
        plain = run_python("-m", module, "a", "-m", "b", cwd=tmp_path)
        assert ended.code == plain.code == 0, ended.err
        assert ended.out == plain.out
        assert "It has not imported torch." in ended.err


IMPORTS = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
assert "torch" not in sys.modules
{imports}
print(torch.get_num_threads())
x = torch.ones(3, requires_grad=True)
x.sin().sum().backward()
assert hindcast.is_enabled() and hindcast.stats()["backwards"] == 1
"""


FAILS_AT_FIRST = """
sys.modules["torch._C"] = None
try:
    import torch
except ImportError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        del sys.modules[name]
import torch, hindcast
"""

FROM_THREADS = """
import threading, hindcast
def use():
    assert callable(hindcast.aot_function)
    done.append(1)
done = []
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == 8
import torch
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import torch, hindcast",
        "import hindcast, torch",
        "import hindcast.partition, torch; assert hindcast.partition.standard",
        "import hindcast; assert hindcast.compilers.eager; import torch",
        "from hindcast import *; import hindcast, torch; partition.min_cut",
        "import importlib; torch = importlib.import_module('torch'); import hindcast",
        "import importlib.util; assert importlib.util.find_spec('torch'); import torch, hindcast",
        FAILS_AT_FIRST,
        FROM_THREADS,
    ],
)
def test_the_script_imports_torch_itself(run, imports):
    """What it sets in the environment before it does so has an effect."""
    ended = run(IMPORTS.format(imports=imports), preamble="", OMP_NUM_THREADS="2")
    assert (ended.code, ended.out, ended.taken_over) == (0, "1\n", [1]), ended.err


@pytest.mark.parametrize(
    "beside, script, said",
    [
        ("folder/beside.py", "import beside, sys; print(sys.argv)", "['folder/script.py']\n"),
        ("tqdm.py", "import torch; print('torch')", "torch\n"),  # in the working directory; torch may import another tqdm
    ],
)
def test_a_script_in_another_folder_imports_from_there(tmp_path, beside, script, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / beside).write_text("" if beside.startswith("folder") else "raise SystemExit('imported')\n")
    (tmp_path / "folder" / "script.py").write_text(script + "\n")
    ended = run_python("-m", "hindcast", "folder/script.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, said), ended.err


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "sys.exit('a text')",
        "sys.exit()",
        "def f():\n    raise KeyError('x')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('y')",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "def f(:",
        "import atexit; atexit.register(print, 'at exit')",
        "import threading; threading.Thread(target=lambda: 1 / 0).start()",
        "import os; os._exit(5)",
        "sys.excepthook = lambda *error: print(error[0].__name__)\nraise KeyError",
    ],
)
def test_an_end_is_that_under_python(run, tmp_path, program):
    ended = run("import sys\n" + program + "\n", preamble="")
    plain = run_python("script.py", cwd=tmp_path)
    assert ended.code == plain.code
    assert ended.out == plain.out
    before_the_report = re.split(r"hindcast, process \d+:", ended.err)[0]
    thread = r"Thread-\d+ \(<lambda>\)"
    assert re.sub(thread, "", before_the_report) == re.sub(thread, "", plain.err)
    assert ("hindcast, process" in ended.err) == ("_exit" not in program)


def test_backwards_of_a_scripts_own_last_functions_are_in_the_report(run):
    ended = run("import atexit\natexit.register(train)\ntrain()\n")
    assert ended.code == 0, ended.err
    assert ended.taken_over == [40]


def test_the_report_may_go_to_a_file(run, tmp_path):
    ended = run("train()\n", options=("--compiler", "eager", "-o", "report.txt"))
    assert (ended.code, ended.err) == (0, "")
    assert "taken over                  20" in (tmp_path / "report.txt").read_text()


def test_the_report_is_where_the_run_began(run, tmp_path):
    (tmp_path / "other").mkdir()
    assert run("import os\nos.chdir('other')\ntrain()\n", options=("-o", "report.txt")).code == 0
    assert "taken over" in (tmp_path / "report.txt").read_text() and not any((tmp_path / "other").iterdir())


@pytest.mark.parametrize("option", ["--deterministic", "--verify", "--nan-guard", "--no-back-off", "--dynamic=never"])
def test_options_are_those_of_enable(run, option):
    ended = run("train()\n", options=(option,))
    assert ended.code == 0, ended.err
    assert ended.taken_over == [20]


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "there is no script, and no -m module"),
        (("-m",), "there is no script, and no -m module"),
        (("absent.py",), "'absent.py' is no file; expected a script, or -m and a module"),
        (("--compiler", "slow", "script.py"), "invalid choice: 'slow'"),
        (("--bogus", "script.py"), "unrecognized arguments: --bogus"),
        (("-o", "absent/report", "script.py"), "-o: [Errno 2] No such file or directory: 'absent/report'"),
    ],
)
def test_mistakes_are_named(tmp_path, arguments, said):
    (tmp_path / "script.py").write_text("print('ran')\n")
    ended = run_python("-m", "hindcast", *arguments, cwd=tmp_path)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err and ended.out == ""


def test_the_environment_switches_it_off(run):
    ended = run("train()\n", HINDCAST_DISABLE="1")
    assert ended.code == 0, ended.err
    assert (ended.taken_over, ended.on_pytorchs) == ([0], [20])
    assert re.search(r"Disabled +20", ended.err)


def test_a_scripts_own_guards_win(run):
    ended = run(
        """
import hindcast
with hindcast.enable(enabled=False):
    train(3)
    assert not hindcast.is_enabled()
train(5)
assert hindcast.is_enabled()
"""
    )
    assert ended.code == 0, ended.err
    assert (ended.taken_over, ended.on_pytorchs) == ([5], [3])


CHILDREN = """
import multiprocessing

def work(steps):
    import hindcast
    assert hindcast.is_enabled()
    train(steps)

if __name__ == "__main__":
    train()
    context = multiprocessing.get_context(sys.argv[1])
    for steps in (7, 0):
        child = context.Process(target=work, args=(steps,))
        child.start(); child.join()
        assert child.exitcode == 0
"""


@pytest.mark.parametrize("method, of_child", [("fork", 27), ("spawn", 7), ("forkserver", 7)])
def test_children_of_multiprocessing_have_the_guard_and_a_report(run, method, of_child):
    ended = run(CHILDREN, method)
    assert ended.code == 0, ended.err
    assert ended.taken_over == [of_child, 20], "one that ran no backward says nothing"


def test_a_pool_and_its_childrens_errors(run):
    ended = run(
        """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing

def work(steps):
    train(steps)
    if steps == 4:
        raise KeyError("of the work")
    return steps

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(work, 3).result() == 3
        assert type(pool.submit(work, 4).exception()) is KeyError
"""
    )
    assert ended.code == 0, ended.err
    assert ended.taken_over == [7, 0]


def test_a_child_that_has_no_torch_does_not_load_it(tmp_path):
    (tmp_path / "script.py").write_text(
        """
import multiprocessing, sys

def work():
    print("torch" in sys.modules, "hindcast" in sys.modules)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start(); child.join()
"""
    )
    ended = run_python("-m", "hindcast", "script.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "False False\n"), ended.err


def test_a_fork_that_ends_as_a_process_does(run):
    ended = run(
        """
import os
train()
for steps in (3, 0):
    if os.fork() == 0:
        train(steps)
        sys.exit(4)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 4
"""
    )
    assert ended.code == 0, ended.err
    assert ended.taken_over == [23, 20]


def test_calls_without_the_extension_module(run):
    ended = run(
        """
import threading
thread = threading.Thread(target=train)
thread.start(); thread.join()
train()
""",
        HINDCAST_PYTHON_CALLS="operators",
    )
    assert ended.code == 0, ended.err
    assert ended.taken_over == [40]


def test_the_help_is_no_scripts():
    ended = run_python("-m", "hindcast", "--help", cwd=Path("/"))
    assert ended.code == 0
    assert ended.out.startswith("usage: python -m hindcast [option]... (script.py | -m module) [argument]...")
