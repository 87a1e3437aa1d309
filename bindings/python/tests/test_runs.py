"""Runs as frames: made here as the command makes them, and checked against figures that are known."""

import json

import punctual
import pytest

CELLS = [("shared/spin", 64), ("udp/epoll", 64)]


def rows(cell, trial):
    """101 messages: the first, and a hundred of 1 to 100 ns, of which two were lost."""
    name, size = cell
    for index in range(101):
        yield {
            "name": name,
            "kind": "round_trip",
            "load": "closed",
            "gap_us": 0,
            "size": size,
            "trial": trial,
            "index": index,
            "phase": "first" if index == 0 else "steady",
            "total_ns": 10_000 if index == 0 else index,
            "outcome": "lost" if index in (1, 2) else "answered",
        }


@pytest.fixture
def stored(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "samples").mkdir()
    for number, cell in enumerate(CELLS):
        frame = pandas.DataFrame(rows(cell, 0)).astype({"total_ns": "uint64"})
        frame.to_parquet(tmp_path / "samples" / f"{number:04}-x-t0.parquet")
    (tmp_path / "run.json").write_text(json.dumps({"experiment": "survey"}))
    return tmp_path


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_run_is_read_into_frames(stored, library):
    pytest.importorskip(library)
    run = punctual.read_run(stored, library)
    assert run.info["experiment"] == "survey" and run.summary is None and run.library == library
    assert len(run.samples) == 202 and len(run.steady) == 200
    found = run.quantile(0.5)
    values = dict(zip(found["name"], found["ns"])) if library == "pandas" else dict(found.select("name", "ns").iter_rows())
    # Two are infinitely late: of 3 to 100 and those, the lower median is the fiftieth.
    assert values == {"shared/spin": 52.0, "udp/epoll": 52.0}
    (stored / "summary.json").write_text(json.dumps({"results": []}))
    assert punctual.read_run(stored, library).summary == {"results": []}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_quantile_is_of_the_rank_of_the_summary(tmp_path, library):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pytest.importorskip(library)
    (tmp_path / "samples").mkdir()
    frame = pandas.concat([pandas.DataFrame(rows(CELLS[0], 0))] * 11, ignore_index=True).iloc[:1050]
    frame = frame.assign(total_ns=range(1, 1051), outcome="answered", phase="steady").astype({"total_ns": "uint64"})
    frame.to_parquet(tmp_path / "samples" / "0000-x-t0.parquet")
    (tmp_path / "run.json").write_text(json.dumps({"experiment": "survey"}))
    run = punctual.read_run(tmp_path, library)
    # ceil(0.99 * 1050): 1,040 of them are at or below it.
    for part in (-0.5, 99, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            run.quantile(part)
    assert [list(run.quantile(part)["ns"]) for part in (0, 0.5, 0.99, 1)] == [[1.0], [525.0], [1040.0], [1050.0]]


def test_what_is_no_run_says_so(stored):
    with pytest.raises(FileNotFoundError):
        punctual.read_run(stored / "nowhere")
    with pytest.raises(ValueError, match="polars"):
        punctual.read_run(stored, "excel")
    for file in (stored / "samples").iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError, match="no trial"):
        punctual.read_run(stored, "pandas")
