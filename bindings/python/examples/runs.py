# %% [markdown]
# Read a run, draw it, compare two. Cells for an editor or Jupyter, and a program: python runs.py RUN [OTHER]
# %%
import sys

import punctual

RUNS = [punctual.read_run(path) for path in sys.argv[1:] or ["RUN"]]
run = RUNS[0]
print(run.path.name, run.info.get("experiment"), f"{len(run.samples)} messages, {run.library}")

# %% Figures of each cell, in microseconds: the same as the summary's.
QUANTILES = [0.5, 0.9, 0.99]


def figures(run):
    """Of each cell its quantiles, nanoseconds."""
    cells = {}
    for quantile in QUANTILES:
        frame = run.quantile(quantile)
        rows = frame.iter_rows(named=True) if run.library == "polars" else frame.to_dict("records")
        for row in rows:
            cell = " ".join(str(row[column]) for column in punctual.runs.CELL)
            cells.setdefault(cell, []).append(row["ns"])
    return cells


for cell, values in figures(run).items():
    print(f"{cell:50}", *(f"p{quantile * 100:g} {ns / 1000:.2f} us" for quantile, ns in zip(QUANTILES, values)))

# %% Drawn: how many messages took how long, a line for each power of two.
steady = run.steady
column = steady["ns"].to_list() if run.library == "polars" else steady.ns.to_list()
lost = sum(ns == float("inf") for ns in column)
bins = {}
for ns in column:
    if ns != float("inf"):
        power = max(int(ns), 1).bit_length()
        bins[power] = bins.get(power, 0) + 1
widest = max(bins.values(), default=1)
for power in range(min(bins, default=0), max(bins, default=-1) + 1):
    count = bins.get(power, 0)
    print(f"< {2**power / 1000:10.2f} us {'#' * -(-60 * count // widest)} {count}")
print(f"never: {lost}")

# %% Compared: cells that both have. `punctual compare` says besides whether a difference is one.
if len(RUNS) > 1:
    ours, theirs = figures(run), figures(RUNS[1])
    for cell in ours.keys() & theirs.keys():
        ratios = (b / a if a else float("nan") for a, b in zip(ours[cell], theirs[cell]))
        print(f"{cell:50}", *(f"p{quantile * 100:g} {ratio:.2f}x" for quantile, ratio in zip(QUANTILES, ratios)))
