"""Pages say what the records say, name every number that is worse than the paper's, and change no other text."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from manifoldrf.cli.console import cell
from reproduction import normals, velocity
from reproduction.record import Record
from reproduction.report import pages
from reproduction.report.catalogue import CATALOGUE
from reproduction.report.comparison import RIVAL_NAMES, Pair, record_pairs
from reproduction.report.pages import (
    BEGIN,
    DEFAULT,
    END,
    PUBLISHED,
    RECIPE,
    read_records,
    readme_table,
    replace_between,
    results_page,
)
from reproduction.report.style import TITLES

ROOT = Path(__file__).parents[3]
COMMAND = "python -m reproduction surfaces --size paper"
PLACE = {"commit": "abc1234", "machine": "Linux x86_64, 2 cores", "numpy": "2.1.0"}
ERRORS = ("r2", "re", "mse", "kernel", "nodes", "own_kernel", "new_points", "nodes_plain", "new_points_plain")
METHODS = (PUBLISHED, RECIPE, "default, same kernel", DEFAULT)
NOTHING = dict.fromkeys((*ERRORS, "features", "fit_s", "kernel_ms", "speed_up"))


def surfaces(**changes):
    """A record of one surface; changes are of the row of the default for the same kernel."""
    published = {
        "r2": 0.997,
        "re": 0.23,
        "mse": 26.9,
        "kernel": 0.067,
        "nodes": 0.067,
        "kernel_ms": 66.0,
        "speed_up": 55,
    }
    same = {"r2": 0.9999, "re": 0.01, "mse": 0.12, "new_points": 0.0042, "features": 4000}
    same |= {"kernel": 0.0031, "nodes": 0.0031}
    same |= {"fit_s": 1.25, "kernel_ms": 8.5, "speed_up": 1234.0} | changes
    heat = {"kernel": 0.0011, "new_points": 0.0015, "features": 1024}
    heat |= {"fit_s": 0.75, "kernel_ms": 1.5, "speed_up": 3456.0}
    recipe = {"r2": 0.998, "kernel": 0.05}
    rows = [published, recipe, same, heat]
    table = [
        {"surface": "mobius", "method": method} | NOTHING | row for method, row in zip(METHODS, rows, strict=True)
    ]
    targets = [
        {"what": "error at nodes", "seen": 0.0031, "comparison": "<=", "limit": 0.012, "holds": True},
        {"what": "speed-up", "seen": 900.0, "comparison": ">=", "limit": 1000.0, "holds": False},
    ]
    tables = {"surfaces": table, "targets": targets}
    return Record("surfaces", {"n_nodes": 4000, "tau": 20.0}, tables, 95.0, PLACE | {"command": COMMAND})


def ambient(**changes):
    row = {"surface": "mobius", "method": "RFF", "features": 16_000, "sigma": 0.2, "r2": 0.75, "error": 0.48}
    row |= {"paper_r2": 0.748, "paper": 0.489} | changes
    verdict = {"surface": "mobius", "mrf": 0.02, "ambient": 0.123, "nystrom": 0.0456, "paper_ambient": 0.489}
    tables = {"best": [row], "curves": [{"features": 987_654}], "verdict": [verdict]}
    return Record("ambient", {"widths": list(range(40)), "limits": {"Nystrom": "few"}}, tables, 5.0, PLACE)


def teachers():
    return Record("teachers", {"seed": 0}, {"teachers": [{"estimator": "a|b", "error": 0.05}]}, 7000.0, PLACE)


@pytest.fixture
def records():
    return {"surfaces": surfaces(), "ambient": ambient(), "teachers": teachers()}


def section(page, name, title=None):
    """The part of a page below a heading."""
    part = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    return part if title is None else part.split(f"\n### {title}\n")[1].split("\n### ")[0]


def test_tables_have_our_numbers_and_the_papers(records):
    page = results_page(records)
    table = section(page, "surfaces", "Table surfaces")
    assert "| Möbius strip | paper, published | 0.997 | 0.23 | 26.9 | 0.067 |" in table
    assert (
        "| Möbius strip | default, same kernel | 0.9999 | 0.01 | 0.12 | 0.0031 | 0.0031 | 0.0042 | 4000 | 1.25 |"
        in table
    )
    assert "plain" not in table  # a column without a value
    assert "| Möbius strip | RFF | 16,000 | 0.2 | 0.75 (0.748) | 0.48 (0.489) |" in section(page, "ambient")


def test_targets_are_words_and_say_whether_they_hold(records):
    table = section(results_page(records), "surfaces", "Table targets")
    assert "| error at nodes | 0.0031 | at most 0.012 | yes |" in table
    assert "| speed-up | 900 | at least 1000 | no |" in table


def test_the_page_says_how_it_was_made(records):
    page = results_page(records)
    assert "surfaces, ambient, teachers: commit abc1234, machine Linux x86\\_64, 2 cores, numpy 2.1.0." in page
    assert f"```sh\n{COMMAND}\n```" in section(page, "surfaces")
    assert "Took 1 min 35 s. Settings: n\\_nodes = 4000; tau = 20." in page
    assert "widths = 0, 1, ..., 39 (40 values); limits = Nystrom: few." in page
    assert (
        "Without a record so far: gaussian\\_grid, normals, velocity, attention, attention\\_order, brodatz, "
        "hyperbolic, few\\_labels," in page
    )


@pytest.mark.parametrize(
    ("command", "kind", "made"),
    [
        (f"{COMMAND} --set n_nodes=9", "With changed settings", f"`{COMMAND} --set n_nodes=9`"),
        (None, "Not known to be of the paper's size", "a command that the record does not name"),
    ],
)
def test_numbers_of_another_size_are_marked_on_the_page_and_in_the_readme(command, kind, made):
    """Small runs beside the paper's numbers would be read as if they were alike."""
    found = PLACE | ({"command": command} if command else {})
    small = {"surfaces": dataclasses.replace(surfaces(), environment=found)}
    note = f"**{kind}**: surfaces was made by {made}."
    for text in (results_page(small), readme_table(small)):
        assert text.count(note) == 1
    full = {"surfaces": surfaces()}
    assert "was made by" not in results_page(full) + readme_table(full)


def test_a_small_run_is_not_measured_against_the_paper():
    """Its numbers are worse for one reason only, and a list of others would be false."""
    command = COMMAND.replace("paper", "smoke")
    small = {"surfaces": dataclasses.replace(surfaces(), environment=PLACE | {"command": command})}
    page = results_page(small)
    assert f"**A small run**: `{command}` is far below the paper's size" in page
    assert "worse than the paper" not in page
    assert "Where we are worse than the paper" in results_page({"surfaces": surfaces()})


def test_records_from_two_places_are_told_apart(records):
    records["teachers"] = dataclasses.replace(records["teachers"], environment=PLACE | {"numpy": "2.2.0"})
    page = results_page(records)
    assert "surfaces, ambient: commit abc1234" in page
    assert "teachers: commit abc1234, machine Linux x86\\_64, 2 cores, numpy 2.2.0." in page


def test_tables_that_are_drawn_are_left_out_and_signs_of_markdown_escaped(records):
    page = results_page(records)
    assert "987,654" not in page
    assert "| a\\|b | 0.05 |" in page


def test_pictures_are_linked_if_they_are_there(records):
    assert "![" not in results_page(records)
    page = results_page(records, images={"surfaces_fields.png", "other.png"})
    assert page.count("![") == 1
    caption = CATALOGUE["surfaces"].caption("surfaces", "surfaces_fields")
    assert caption.startswith("A column for each surface: fields of a node")
    assert f"![{caption}](images/surfaces_fields.png)" in page


def test_the_same_records_give_the_same_bytes_in_any_order(records):
    turned = dict(reversed(records.items()))
    assert results_page(turned) == results_page(records)
    assert readme_table(turned) == readme_table(records)


WORSE = "Where we are worse than the paper"


def test_the_page_counts_the_papers_method_other_methods_and_times_apart(records):
    counts = section(results_page(records | {"ambient": ambient(r2=0.7)}), "The paper's numbers and ours")
    assert "| record | MRF | MRF, worse | other methods | other methods, worse | times | times, worse |" in counts
    pairs = list(record_pairs(records["surfaces"].tables))
    times = [pair for pair in pairs if pair.column in ("kernel_ms", "speed_up")]
    rest = [pair for pair in pairs if pair not in times]
    (n, worse), (n_times, slower) = ((len(part), sum(pair.is_worse for pair in part)) for part in (rest, times))
    assert f"| surfaces | {n} | {worse} |  |  | {n_times} | {slower} |" in counts
    assert "| ambient |  |  | 3 | 1 |  |  |" in counts  # r2, error, and the column ambient of the verdict


@pytest.mark.parametrize(
    ("method", "column", "kind"),
    [
        ("MRF, paper's recipe", "dense", "MRF"),
        ("exact features, uniform anchors", "as_paper", "MRF"),
        ("", "error", "MRF"),
        ("RFF 256", "as_paper", "other methods"),
        ("raw", "accuracy", "other methods"),
        ("", "ambient", "other methods"),
        ("RFF 256", "interpolate", "other methods"),
        ("RFF 256", "prepare_s", "times"),
        ("paper's recipe", "speed_up", "times"),
    ],
)
def test_a_number_is_of_the_papers_method_of_another_or_a_time(method, column, kind):
    assert Pair(0, "", method, column, 1.0, 2.0).kind == kind


def test_nothing_is_worse_where_all_is_better(records):
    page = results_page(records)
    # Two of the recipe, six of the default, three of the heat kernel; two of a method and one of the verdict.
    assert "Nowhere, in 12 numbers." in section(page, "surfaces", WORSE)
    assert "Nowhere, in 3 numbers." in section(page, "ambient", WORSE)
    assert "No number of the paper stands beside those of this record." in section(page, "teachers", WORSE)


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"r2": 0.9}, "R² | 0.9 | 0.997 | no reason known |"),
        ({"re": 0.24}, "mean RE | 0.24 | 0.23 | no reason known |"),
        ({"kernel": float("nan")}, "kernel | nan | 0.067 | on the sphere against the analytic"),
        (
            {"kernel_ms": 80.0},
            "kernel, ms | 80 | 66 | another machine; times can only be compared within one run |",
        ),
        (
            {"speed_up": 54},
            "speed-up | 54 | 55 | another machine and another eigendecomposition, both timed in this",
        ),
    ],
)
def test_every_number_worse_than_the_papers_is_named_with_a_reason(changes, row):
    text = section(results_page({"surfaces": surfaces(**changes)}), "surfaces", WORSE)
    assert "In 1 of 12 numbers:" in text
    assert f"| Möbius strip, default, same kernel, 4000 features | {row}" in text
    assert text.count("| Möbius strip,") == 1


def test_the_page_begins_with_how_many_numbers_are_worse(records):
    page = results_page(records)
    text = section(page, "The paper's numbers and ours")
    for name in ("surfaces", "ambient"):
        listed = section(page, name, WORSE)
        worse = listed.count("\n| ") - 1 if "Nowhere" not in listed else 0
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")[1:]]
        assert sum(int(cell or 0) for cell in cells[1::2]) == worse
        assert sum(int(cell or 0) for cell in cells[::2]) == len(list(record_pairs(records[name].tables)))
    assert "teachers" not in text  # the paper has no such numbers


def test_baselines_worse_than_the_papers_are_named_too():
    text = section(results_page({"ambient": ambient(error=0.6)}), "ambient", WORSE)
    assert "| Möbius strip, RFF, 16,000 features | error | 0.6 | 0.489 | another draw, and a sigma" in text


def test_the_readme_has_a_small_table(records):
    lines = readme_table(records).splitlines()
    assert (
        lines[0]
        == "| surface | paper, published | paper's recipe, here | this library | this library, new points |"
    )
    assert lines[2] == "| Möbius strip | 0.067 | 0.05 | 0.0031 | 0.0015 |"
    # The eigendecomposition takes 3456 x 1.5 ms = 5.184 s, the fit and the kernel together .7515 s.
    assert "took 0.75 s" in lines[-1]
    assert lines[-1].endswith("and 6.9 times as long as fit and kernel together.")
    assert len(lines) == 7


def test_the_readme_says_what_other_seeds_and_neighbours_give_on_the_strip(records):
    found = [(24, 0.0216), (12, 0.0448), (24, 0.0233), (12, 0.0512)]
    rows = [{"surface": "mobius", "neighbours": k, "kernel": error} for k, error in found]
    records["surfaces"].tables["recipe"] = [{"surface": "torus", "neighbours": 8, "kernel": 0.017}, *rows[:2]]
    assert "norm of its kernel, the error of the recipe is 0.045." in readme_table(records)
    assert "seeds" not in readme_table(records)
    records["surfaces"].tables["recipe"] += rows[2:]
    assert "is 0.045 to 0.051. Over 2 seeds it is 0.022 to 0.023 with 24." in readme_table(records)


def test_fingerprints_are_shown_beside_the_papers_and_are_no_losses():
    row = {
        "surface": "torus",
        "neighbours": 8,
        "bandwidth": "mean",
        "fingerprint": 11.95,
        "paper_fingerprint": 11.86,
    }
    page = results_page({"surface_graphs": Record("surface_graphs", {}, {"fingerprints": [row]}, 1.0, PLACE)})
    assert "| torus | 8 | mean | 11.95 (11.86) |" in page
    assert "No number of the paper stands beside those of this record." in page


def test_the_readme_needs_the_surfaces(records):
    del records["surfaces"]
    with pytest.raises(ValueError, match=r"with the table 'surfaces' in surfaces\.json\. Got ambient, teachers\."):
        readme_table(records)


def test_a_readme_without_one_of_its_methods_is_refused():
    record = surfaces()
    rows = record.tables["surfaces"][:3]
    with pytest.raises(
        ValueError, match=r"all methods of the README's table .* no default, heat kernel, 1024 features\."
    ):
        readme_table({"surfaces": dataclasses.replace(record, tables={"surfaces": rows})})


def test_only_the_text_between_the_markers_is_replaced():
    text = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    new = replace_between(text, BEGIN, END, "| new |")
    assert new == f"above\n{BEGIN}\n\n| new |\n\n{END}\nbelow\n"
    assert replace_between(new, BEGIN, END, "| new |") == new


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}"])
def test_missing_or_doubled_markers_are_refused(text):
    with pytest.raises(ValueError, match=r"`README.md` must be a text with <!-- results: begin --> and, after it,"):
        replace_between(text, BEGIN, END, "new", name="README.md")


def test_records_are_read_without_their_arrays_in_the_order_of_the_catalogue(records, tmp_path):
    for record in records.values():
        record.save(tmp_path).with_suffix(".npz").unlink()
    found = read_records(tmp_path)
    assert list(found) == ["surfaces", "ambient", "teachers"]
    assert results_page(found) == results_page(records)


def test_a_folder_without_records_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"`records` must be a folder with the \.json files of records"):
            read_records(folder)


def test_a_broken_record_is_refused_by_name(tmp_path):
    teachers().save(tmp_path)
    (tmp_path / "surfaces.json").write_text("{broken")
    with pytest.raises(ValueError, match=r"must be the \.json file of a saved record\. Got surfaces\.json"):
        read_records(tmp_path)


@pytest.mark.parametrize(("name", "file"), [("unknown", "unknown.json"), ("teachers", "other.json")])
def test_a_record_of_no_known_experiment_or_with_another_name_is_refused(tmp_path, name, file):
    path = dataclasses.replace(teachers(), name=name).save(tmp_path)
    path.rename(tmp_path / file)
    with pytest.raises(
        ValueError, match=rf"named after their experiment: surfaces\.json, .* Got '{name}' in {file}"
    ):
        read_records(tmp_path)


def test_the_committed_pages_are_those_of_the_committed_records():
    found = read_records(ROOT / "docs" / "records")
    images = {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == results_page(found, images)
    assert "no reason known" not in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == replace_between(readme, BEGIN, END, readme_table(found))


def test_a_record_made_from_files_has_a_section_of_its_own(monkeypatch, records):
    entry = dataclasses.replace(CATALOGUE["teachers"], reads="a folder of schools")
    for name in entry.records:
        monkeypatch.setitem(pages.ENTRY_OF, name, entry)
    command = "manifoldrf reproduce teachers --size paper --data DIR"  # as older records have it
    made = dataclasses.replace(teachers(), name="teachers_data", environment=PLACE | {"command": command})
    page = results_page(records | {"teachers_data": made}, images={"teachers_data.png"})
    part = section(page, "teachers\\_data")
    assert "a folder of schools" in part
    assert "images/teachers_data.png" in part
    assert "```sh\npython -m reproduction teachers --size paper --data DIR\n```" in part
    assert "Not known to be of the paper's size" not in part


# ------------------------------------------------------------------------------------------------- like for like
def test_the_reason_of_a_method_comes_before_that_of_a_column():
    pair = Pair(0, "strip", "RFF", "mrf", 2.0, 1.0)
    assert pair.reason("ambient") == Pair(0, "strip", "RFF", "rmse", 2.0, 1.0).reason("ambient")
    assert pair.reason("ambient") != Pair(0, "strip", "", "mrf", 2.0, 1.0).reason("ambient") != "no reason known"


def test_errors_of_signatures_are_compared_against_walks_where_we_have_them():
    record = surfaces()
    against = [
        {"surface": "mobius", "method": RECIPE, "against": kind, "r2": r2}
        for kind, r2 in (("walks", 0.99), ("exact", 1))
    ]
    found = list(record_pairs(record.tables | {"signatures": against}))
    assert [(pair.method, pair.ours) for pair in found if pair.column == "r2"] == [(RECIPE, 0.99)]
    plain = [pair.ours for pair in record_pairs(record.tables) if pair.column == "r2"]
    assert plain == [0.998, 0.9999]  # without such rows there is nothing else to compare


def test_where_units_differ_ranks_are_compared_and_their_differences_said():
    rows = [
        {"method": name, "mse": ours, "published_mse": paper}
        for name, ours, paper in (("MRF", 0.3, 1.0), ("heat", 0.1, 3.0), ("RFF", 0.2, 2.0), ("other", 0.4, None))
    ]
    record = Record("attention", {}, {"attention": rows, "sources": rows}, 1.0, PLACE)
    page = results_page({"attention": record})
    assert "no numbers to compare with" not in page
    assert page.count("| MRF | 0.3 | 3 | 1 | 1 |") == 1  # tables that are drawn are not ranked
    assert "MRF is 3 of 3 here and 1 in the paper; heat is 1 of 3 here and 3 in the paper" in page
    agreed = [row | {"mse": row["published_mse"]} for row in rows[:3]]
    assert "The orders agree." in results_page({"attention": dataclasses.replace(record, tables={"a": agreed})})


def test_the_page_says_that_records_come_from_different_commits(records):
    assert "The records come from" not in results_page(records)
    other = {"teachers": dataclasses.replace(teachers(), environment=PLACE | {"commit": "fedcba9"})}
    assert "The records come from 2 different commits" in results_page(records | other)


def test_the_page_says_how_a_record_was_changed_and_lists_the_commits_of_its_parts(records):
    assert "after the run" not in results_page(records)
    facts = {"commits of its parts": "abc1234 (2 of 3), fedcba9 (1 of 3)", "edited": "times were removed"}
    page = results_page(records | {"teachers": dataclasses.replace(teachers(), environment=PLACE | facts)})
    assert "teachers was changed after the run: times were removed.\n" in page
    assert "commits of its parts abc1234 (2 of 3), fedcba9 (1 of 3)" in page
    assert "edited" not in page


# ------------------------------------------------------ the committed page, computed again from the records' arrays
@pytest.fixture(scope="module")
def committed():
    return read_records(ROOT / "docs" / "records", arrays=True)


def page_rows(section, table):
    """Rows of a table of docs/results.md, as dictionaries of texts."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").replace("\\_", "_")
    part = (
        page.split(f"\n## {section}\n")[1].split("\n## ")[0].split(f"\n### Table {table}\n\n")[1].split("\n\n")[0]
    )
    head, _, *body = [[text.strip() for text in line.strip("|").split(" | ")] for line in part.splitlines()]
    return [dict(zip([name.strip() for name in head], row, strict=True)) for row in body]


def test_errors_of_attention_follow_from_the_errors_of_every_signal(committed):
    record, names = committed["attention"], {title: name for name, title in TITLES.items()}
    shown = page_rows("attention", "attention")
    methods = record.config["methods"]
    assert len(shown) >= 4 * len(methods)
    for row in shown:
        surface = names.get(row["surface"], row["surface"])
        every = [record.arrays[f"{surface}_{kind}"] for kind in ("mse", "l2")]  # (methods, seeds, sources)
        if row["method"] == "MRF learned":  # on the first seeds
            mse, l2 = (record.arrays[f"{surface}_learned_{kind}"] for kind in ("mse", "l2"))
        else:
            mse, l2 = (errors[methods.index(row["method"])] for errors in every)
        own = every[0][methods.index("MRF")][: len(mse)]
        wanted = {
            "median": np.median(mse),
            "mean": mse.mean(),
            "MSE": np.exp(np.log(mse).mean()),
            "ratio": np.exp((np.log(mse) - np.log(own)).mean()),
            "l2": np.median(l2),
        }
        assert {name: row[name] for name in wanted} == {name: cell(float(value)) for name, value in wanted.items()}


def test_the_order_of_attention_follows_from_the_errors_of_every_signal(committed):
    record = committed["attention_order"]
    rivals = record.config["methods"][:-1]  # the last are features with uniform anchors
    logs = np.log(record.arrays["mse"]).mean(axis=(2, 3))[:, :-1]  # (variations, methods)
    shown = page_rows("attention_order", "order")
    assert len(shown) == len(logs)
    for row, line in zip(shown, logs, strict=True):
        order = [rivals[place] for place in np.argsort(line)]
        assert [row["best"], row["worst"]] == [order[0], order[-1]]
        ranks = [order.index(name) + 1 for name in ("MRF", "exact heat", "exact RBF")]
        assert [int(row[name]) for name in ("mrf", "exact heat", "exact rbf")] == ranks


def test_leads_with_few_labels_follow_from_the_accuracies_of_every_draw(committed):
    record = committed["few_labels"]
    places = {
        (row["cloud"], str(row["labels"]), row["method"]): place
        for place, row in enumerate(record.tables["accuracy"])
    }
    for row in page_rows("few_labels", "losses"):
        ours, rival = (
            record.arrays["new"][places[row["cloud"], row["labels"], row[name]]] for name in ("ours", "rival")
        )
        assert row["ours new"] == cell(float(ours.mean()))
        assert row["rival new"] == cell(float(rival.mean()))
        assert row["lead"] == cell(float(ours.mean() - rival.mean()))
        error = (ours - rival).std(ddof=1) / np.sqrt(len(ours))
        assert row["error"] == cell(float(error))


@pytest.mark.parametrize("name", ["velocity", "velocity_data"])
def test_velocities_over_sizes_and_sequences_follow_from_the_cells(committed, name):
    tables = committed[name].tables
    for row in page_rows(name, "velocity"):
        own = [
            one["cosine"]
            for one in tables["cells"]
            if (one["method"], one["setting"]) == (row["method"], "as_paper")
        ]
        assert row["as paper"] == (cell(float(np.mean(own))) if own else "")
        sizes = [one["cosine"] for one in tables["scaling"] if one["method"] == row["method"] and one.get("cosine")]
        if sizes:
            assert row["dense (paper)"].split(" ")[0] == cell(float(np.mean(sizes)))


def test_make_records_runs_every_experiment_and_with_a_folder_those_that_read_files():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = text.split("\nrecords: setup\n")[1].split("\n\n")[0]
    with_files = " ".join(entry.name for entry in CATALOGUE.values() if entry.reads)
    assert "reproduction all --size paper" in recipe
    assert f'ifdef DATA\n\t$(BIN)/python -m reproduction {with_files} --size paper --data "$(DATA)"' in recipe


def test_the_data_page_names_every_file_that_records_were_made_from(committed):
    listed = [line.split("  ")[1] for line in (ROOT / "docs" / "data.sha256").read_text().splitlines()]
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name, folder in (("normals_data", "meshes"), ("velocity_data", "sequences")):
        used = {Path(path).stem for path in listed if path.startswith(folder)}
        assert used == set(committed[name].config["used"])
        assert all(f"`{stem}`" in page for stem in used)
    assert sum(path.startswith("textures/brodatz/D") for path in listed) == 111


def test_every_compared_method_is_known_as_one_of_the_paper_or_as_another(committed):
    """An unknown method would count as features of the surface."""
    own = {"", "MRF", "MRF,", "paper's", "default,", "exact"}
    for record in committed.values():
        for pair in record_pairs(record.tables):
            assert pair.method.partition(" ")[0] in own | RIVAL_NAMES


def test_a_mean_cosine_over_sizes_below_the_papers_is_worse_and_one_above_is_not(committed):
    rows = committed["velocity_data"].tables["velocity"]
    worse = {pair.method for pair in record_pairs({"velocity": rows}) if pair.is_worse}
    assert worse == {row["method"] for row in rows if row["paper_dense"] and row["dense"] < row["paper_dense"]}
    assert "MRF, paper's recipe" in worse
    assert "RFF 256" not in worse


@pytest.mark.parametrize("name", ["normals", "normals_data", "velocity_data"])
def test_summaries_follow_from_the_measured_tables(committed, name):
    record = committed[name]
    assert "at a later commit" not in record.environment.get("edited", "")  # summaries were made by their runs
    tables, cells = record.tables, record.tables["cells"]
    if name == "velocity_data":
        assert velocity.summarise(cells, tables["scaling"], tables["learned"], paper=True) == tables["velocity"]
    else:
        meshes = {row["mesh"] for row in cells if row["vertices"] <= record.config["largest_full"]}
        assert normals.summarise(cells, sorted(meshes), paper=True) == tables["normals"]
