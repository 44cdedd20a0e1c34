import json

import torch
from hindcast.bench import __main__ as bench


def test_a_row_for_each_workload_on_the_screen_and_in_the_file(tmp_path, monkeypatch, capsys):
    threads = torch.get_num_threads()
    monkeypatch.setattr("sys.argv", ["bench", "--only", "mlp/64", "--seconds", "0.01", "--json", str(tmp_path / "rows.json")])
    bench.main()
    torch.set_num_threads(threads)
    written = json.loads((tmp_path / "rows.json").read_text())
    (row,) = written["rows"]
    assert row["name"] == "mlp/64-128-64/b32" and row["hits"] == row["steps"] and row["ratio"] > 0
    assert row["name"] in capsys.readouterr().out
