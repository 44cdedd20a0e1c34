"""HINDCAST_TRACE: the file that a program writes, and the page in it, opened by Chromium without a window."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import pytest

HEAD, BODY = ('<script type="application/x-hindcast%s">' % name for name in ("", "-body"))

PROGRAM = """
import torch, hindcast
torch.set_num_threads(1)
def backward(rows=300):
    w = torch.randn(rows, 300, requires_grad=True)
    w.sin().exp().tanh().sum().backward()
"""


def run(program, folder, **environment):
    """The program's output on stderr."""
    variables = {**os.environ, **environment}
    variables.pop("HINDCAST_TRACE", None)
    if folder is not None:
        variables["HINDCAST_TRACE"] = str(folder)
    command = [sys.executable, "-c", PROGRAM + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stderr


def page_of(folder):
    files = list(folder.iterdir())
    assert len(files) == 1, files
    return files[0]


def records_of(file):
    lines = [line for line in file.read_text().splitlines() if line.startswith(HEAD)]
    return [json.loads(line.removeprefix(HEAD).split("</script>")[0]) for line in lines]


def kinds_of(file):
    return {record["kind"] for record in records_of(file)}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "made"
    run(
        """
        class Hostile(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                return grad * 2
        Hostile.__name__ = "</script><b>&"
        with hindcast.enable():
            for rows in (300, 300, 400, 400):
                backward(rows)
            hindcast.wait()
            for _ in range(3):
                backward()
            Fn = type('</script><b>"&', (Hostile,), {})
            for _ in range(2):
                Fn.apply(torch.randn(3, requires_grad=True)).sum().backward()
            x = torch.randn(3, requires_grad=True)
            y = x * x
            y.register_hook(lambda grad: grad)
            torch.autograd.grad(y.sum(), x, create_graph=True)
        function = hindcast.aot_function(lambda x: (x.sin() * x).sum())
        for _ in range(3):
            function(torch.randn(8, requires_grad=True)).backward()
        """,
        folder,
    )
    return page_of(folder)


# ---- the file


def test_a_run_leaves_one_file(trace):
    assert re.fullmatch(r"hindcast_\d+\.html", trace.name)
    assert {"start", "log", "graph", "joint", "plan", "times"} <= kinds_of(trace)
    text = trace.read_text()
    assert text.startswith("<!doctype html>")
    assert set(re.findall(r"https?://[^\s'\"]*", text)) == {"http://www.w3.org/2000/svg"}, "nothing is fetched"
    assert "default-src 'none'" in text


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_variable_nothing_is_written(tmp_path, value):
    program = f"""
        import os
        os.chdir({str(tmp_path)!r})
        with hindcast.enable():
            for _ in range(3):
                backward()
        """
    assert run(program, value) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    said = run(
        """
        for _ in range(2):
            with hindcast.enable():
                backward()
        assert hindcast.stats()["backwards"] == 2
        """,
        file / "below",
    )
    assert said.count("HINDCAST_TRACE: no page is written") == 1 and str(file / "below") in said


def test_a_child_has_a_file_of_its_own(tmp_path):
    run(
        """
        import os
        with hindcast.enable():
            backward()
            hindcast.wait()
            child = os.fork()
            if child == 0:
                backward(17)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path,
    )
    starts = [records_of(file)[0] for file in tmp_path.iterdir()]
    assert len(starts) == 2
    (parent,) = (start for start in starts if "parent" not in start)
    (child,) = (start for start in starts if "parent" in start)
    assert child["parent"] == parent["pid"] and child["parent_file"] == f"hindcast_{parent['pid']}.html"


def test_set_logs_does_not_switch_it_off(tmp_path):
    run("hindcast.set_logs('recompiles', '/dev/null')\nwith hindcast.enable():\n    backward()\n", tmp_path)
    assert "graph" in kinds_of(page_of(tmp_path))


# ---- the page


class Page(HTMLParser):
    """The text of the elements with an id, without scripts, and which elements there are."""

    VOID = {"meta", "input", "link", "br"}

    def __init__(self, dom):
        super().__init__()
        self.open, self.texts, self.tags, self.body = [], {}, [], {}
        self.feed(dom)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "body":
            self.body = attributes
        self.tags.append((tag, attributes.get("class", "")))
        if tag not in self.VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if not any(tag in ("script", "style") for tag, _ in self.open):
            for _, name in self.open:
                if name:
                    self.texts[name] = self.texts.get(name, "") + data

    def count(self, tag, part_of_class=""):
        return sum(name == tag and part_of_class in classes.split() + [""] for name, classes in self.tags)


def browser():
    for name in ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"):
        program = shutil.which(name)
        # Ubuntu's chromium-browser is a script that requires a snap.
        if program and subprocess.run([program, "--version"], capture_output=True, timeout=60).returncode == 0:
            return program
    return None


@pytest.fixture(scope="module")
def open_page(tmp_path_factory):
    program = browser()
    if program is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    profile = tmp_path_factory.mktemp("profile")

    def open_it(file, view=""):
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--enable-logging=stderr"]
        command = [program, *options, "--dump-dom", f"file://{file}{view}"]
        done = subprocess.run(command, capture_output=True, timeout=600)
        said = done.stderr.decode(errors="replace")
        assert done.returncode == 0, said
        assert "CONSOLE" not in said, said
        page = Page(done.stdout.decode())
        assert "data-error" not in page.body
        return page

    return open_it


def graph_views(file):
    """By role: the part of the address that opens its first graph."""
    graphs = [record for record in records_of(file) if record["kind"] == "graph"]
    return {graph["role"]: f"#graph/{i}/all" for i, graph in reversed(list(enumerate(graphs)))}


def test_the_page_shows_the_run(trace, open_page):
    page = open_page(trace)
    graphs = [record for record in records_of(trace) if record["kind"] == "graph"]
    assert int(page.body["data-graphs"]) == len(graphs) and page.body["data-broken"] == "0"
    for graph in graphs:
        assert f"Graph {graph['graph']}" in page.texts["graphs"]
    for text in ("graphs captured", "Cache miss due to new autograd node", "CreateGraph: create_graph was asked for", "Costliest steps"):
        assert text in page.texts["main"]


def test_names_stay_text(trace, open_page):
    page = open_page(trace)
    assert "</script><b>" in page.texts["main"]
    assert page.count("b") == page.count("div", "card") + page.count("a", "graph"), "no element comes from a name"


def test_a_graph_has_all_its_parts(trace, open_page):
    page = open_page(trace, graph_views(trace)["backward"])
    text = page.texts["main"]
    for part in ("Why it was captured", "Cache miss", "Kernels", "Runs", "Memory over the run", "peak", "Steps", "Guards", "Listing", "Picture"):
        assert part in text
    assert "torch.ops.aten.sin" in text or "torch.ops.aten.cos" in text
    assert page.count("svg") >= 2 and page.count("rect") >= 5 and page.count("path", "edge") >= 5


@pytest.mark.parametrize("role", ["forward of a function", "backward of a function"])
def test_a_function_has_its_programs(trace, open_page, role):
    text = open_page(trace, graph_views(trace)[role]).texts["main"]
    assert role in text and "forward and backward as one" in text and "Steps" in text


def test_kernels_are_shown_with_their_ops_and_reasons(trace, open_page):
    groups = [record for record in records_of(trace) if record["kind"] == "groups" and record["groups"] and record["kernels"]]
    if not groups:
        pytest.skip("this build has no compiler for kernels")
    graphs = [record for record in records_of(trace) if record["kind"] == "graph"]
    index = [graph["graph"] for graph in graphs].index(groups[0]["graph"])
    page = open_page(trace, f"#graph/{index}/all")
    assert page.count("div", "group") == groups[0]["groups"]
    assert "it stopped growing at" in page.texts["main"] and "Text of kernel" in page.texts["main"]
    assert page.count("rect", "fused") > 0, "the picture shows which boxes are one kernel"


def test_events_are_in_order(trace, open_page):
    text = open_page(trace, "#events").texts["main"]
    places = [text.index(part) for part in ("process", "Cache miss", "Graph 0 was captured", "Graph 0 ran 1×")]
    assert places == sorted(places)


def test_a_kernel_that_no_graph_names_is_an_event_with_its_text(trace, open_page):
    records = records_of(trace)
    kernels = [number for number, record in enumerate(records) if record["kind"] == "kernel"]
    if not kernels:
        pytest.skip("this build has no compiler for kernels")
    text = open_page(trace, f"#events/{kernels[0]}").texts["main"]
    assert f"Text of kernel {records[kernels[0]]['kernel'][:8]}" in text


def test_a_file_that_is_cut_off_opens(trace, open_page, tmp_path):
    text = trace.read_bytes()
    lines = text.split(b"\n")
    last = max(i for i, line in enumerate(lines) if b"body" in line and b'"kind":"graph"' in line)
    whole = b"\n".join(lines[:last]) + b"\n"
    line = lines[last]
    for number, cut in enumerate((10, len(HEAD) + 20, line.index(BODY.encode()) + 60, len(line) - 5)):
        file = tmp_path / f"cut{number}.html"
        file.write_bytes(whole + line[:cut])
        page = open_page(file)
        assert int(page.body["data-records"]) >= len(whole.split(HEAD.encode())) - 1
        assert "Overview" not in page.texts["main"] and "graphs captured" in page.texts["main"]


TYPE = """
<script>document.addEventListener('DOMContentLoaded', () => {
  const search = document.getElementById('search');
  search.value = %s;
  search.dispatchEvent(new Event('input'));
});</script>
"""


SEARCHES = [("prod", 0, 0), ("</script><b>", 1, 1), ("TanhBackward0", 1, 3), ('"f32[8', 1, 3), ("Graph", 1, 99)]


@pytest.mark.parametrize("wanted, least, most", SEARCHES)
def test_a_search_looks_at_names_and_listings(trace, open_page, tmp_path, wanted, least, most):
    file = tmp_path / "searched.html"
    file.write_text(trace.read_text() + TYPE % json.dumps(wanted).replace("<", "\\u003c"))
    found = open_page(file).texts["found"]
    assert least <= int(re.match(r"(\d+) of \d+ graphs", found)[1]) <= most, found


def test_three_thousand_graphs_stay_usable(trace, open_page, tmp_path):
    count = 3000
    text = trace.read_text()
    page, first, _ = text.partition(HEAD)
    lines = (first + _).splitlines()
    graph = next(line for line in lines if '"kind":"graph"' in line and '"role":"backward"' in line)
    plan = next(line for line in lines if '"kind":"plan"' in line)
    times = next(line for line in lines if '"kind":"times"' in line)
    number = re.compile(r'"graph":\d+')
    file = tmp_path / "many.html"
    with file.open("w") as out:
        out.write(page + lines[0] + "\n")
        for i in range(count):
            for line in (graph, plan, times):
                out.write(number.sub(f'"graph":{i}', line, count=1) + "\n")
    assert file.stat().st_size < 64 << 20

    page = open_page(file)
    assert page.body["data-graphs"] == str(count)
    assert "3,000 graphs" in page.texts["found"] and "Graph 3 " in page.texts["graphs"]
    assert page.count("a", "graph") < 100, "only rows in sight are in the page"
    last = open_page(file, f"#graph/{count - 1}")
    assert f"Graph {count - 1}" in last.texts["main"]
