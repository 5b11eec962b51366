"""Estimated errors beside true ones: ``python -m benchmarks.calibration`` writes the record, picture and table.

Sixty problems drawn from fixed seeds, thirty of them clouds as they come; ten minutes. ``--seeds 1000 1100`` prints
others and writes nothing; seeds from 2000 on are clouds as they come. ``--seeds 0 20 --write`` renews a part.
"""

import argparse

from benchmarks.calibration import record
from benchmarks.calibration.page import write_page
from benchmarks.calibration.picture import draw_calibration
from benchmarks.calibration.problems import draw, solve


def main() -> None:
    """Solve the problems of the seeds; write what is reported if they are the reported ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs=2, type=int, help="from one to before the other; nothing is written")
    parser.add_argument("--write", action="store_true", help="put the problems of the seeds into the record")
    parser.add_argument("--page", action="store_true", help="picture and table from the record; nothing is run")
    options = parser.parse_args()
    if options.page:
        rows = record.load()
    else:
        rows = [run(seed) for seed in (range(*options.seeds) if options.seeds else record.SEEDS)]
    if options.seeds and options.write:
        renewed = {row["seed"]: row for row in record.load()} | {row["seed"]: row for row in rows}
        rows = [renewed[seed] for seed in record.SEEDS]
    low, high = record.extremes(rows)
    ends = f"{low['ratio']:.2f} to {high['ratio']:.2f}"
    low_ones = f"{record.too_low(rows)} below a third"
    print(f"{record.within(rows)} of {len(rows)} within {record.FACTOR:g}; {low_ones}; {ends}")
    if options.seeds and not options.write:
        return
    if not options.page:
        record.keep(rows)
    draw_calibration(record.load(), record.PICTURE)
    write_page(record.load())


def run(seed: int) -> record.Row:
    """Solve one problem and print a line."""
    row = solve(draw(seed))
    mark = " " if 1 / record.FACTOR <= row["ratio"] <= record.FACTOR else "*"
    graph = "" if row["graph"] is None else f"{row['graph']:.2g}"
    print(
        f"{mark}{seed:5d} {row['family']:18s} {row['space']:32s} {row['kernel']:24s} {row['nodes']:5d} nodes "
        f"{row['features']:4d} features {row['steps'] or '':3} steps {row['field_used']:12s} "
        f"field {row['field']:.2g} quadrature {row['quadrature']:.2g} graph {graph:6s} "
        f"estimate {row['estimate']:.4f} true {row['true']:.4f} ratio {row['ratio']:.2f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
