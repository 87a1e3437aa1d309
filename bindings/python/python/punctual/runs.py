"""Runs of the command `punctual`, as frames of pandas or polars: docs/store.md has their columns."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What makes a cell: of a figure, all of these together.
CELL = ["name", "kind", "load", "gap_us", "size"]

#: Outcomes that count as infinitely late.
NEVER = ["lost", "mismatched", "refused"]


@dataclass(frozen=True)
class Run:
    """A directory that a run of the command left."""

    #: Where it lies.
    path: Path
    #: run.json: experiment, start, host, plan.
    info: dict[str, Any]
    #: summary.json: figures and doubts; None of a run whose process was killed.
    summary: dict[str, Any] | None
    #: Every message of every trial, as a frame.
    samples: Any
    #: "pandas" or "polars".
    library: str

    @property
    def steady(self) -> Any:
        """The messages that figures are made of, with their latency as `ns`: infinite for one that is lost, mismatched or refused."""
        if self.library == "polars":
            import polars

            late = polars.when(polars.col("outcome").is_in(NEVER)).then(float("inf")).otherwise(polars.col("total_ns"))
            return self.samples.filter(polars.col("phase") == "steady").with_columns(ns=late)
        steady = self.samples[self.samples.phase == "steady"]
        return steady.assign(ns=steady.total_ns.astype("float64").where(~steady.outcome.isin(NEVER), float("inf")))

    def quantile(self, quantile: float) -> Any:
        """That quantile of each cell, nanoseconds: the least latency that so large a part of the messages does not exceed."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile {quantile}: from 0 to 1")
        per_million = round(quantile * 1_000_000)
        if self.library == "polars":
            import polars

            rank = (polars.len().cast(polars.Int64) * per_million + 999_999) // 1_000_000
            at = polars.col("ns").sort().get((rank - 1).clip(0))
            return self.steady.group_by(CELL).agg(at).sort(CELL)

        def at(ns: Any) -> float:
            rank = (len(ns) * per_million + 999_999) // 1_000_000
            return ns.sort_values().iloc[max(rank - 1, 0)]

        return self.steady.groupby(CELL, as_index=False).ns.agg(at)


def read_run(path: str | Path, library: str | None = None) -> Run:
    """Reads a run into frames of `library`: "pandas" or "polars"; by default polars where that is installed."""
    path = Path(path)
    info = json.loads((path / "run.json").read_text())
    summary = path / "summary.json"
    library = library or _installed()
    samples = sorted((path / "samples").glob("*.parquet"))
    if not samples:
        raise FileNotFoundError(f"{path / 'samples'}: no trial was stored")
    return Run(
        path=path,
        info=info,
        summary=json.loads(summary.read_text()) if summary.exists() else None,
        samples=_frame(samples, library),
        library=library,
    )


def _installed() -> str:
    for library in ("polars", "pandas"):
        try:
            __import__(library)
        except ImportError:
            continue
        return library
    raise ImportError("frames need polars or pandas: pip install 'punctual[polars]' or 'punctual[pandas]'")


def _frame(files: list[Path], library: str) -> Any:
    if library == "polars":
        import polars

        return polars.read_parquet(files)
    if library == "pandas":
        import pandas

        return pandas.concat([pandas.read_parquet(file) for file in files], ignore_index=True)
    raise ValueError(f"library {library!r}: 'pandas' or 'polars' is needed")
