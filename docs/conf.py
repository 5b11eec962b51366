"""Settings of the documentation; `make docs` builds it without network and with warnings as errors."""

import inspect
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import manifoldrf
from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus, explore

project = "manifoldrf"
author = "The manifoldrf developers"
version = release = manifoldrf.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"manifoldrf {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["gallery.css"]
html_math_renderer = "mathml"
highlight_language = "none"  # a block without a language is not Python

# The gallery is made from the examples, which run while it is made; `-D plot_gallery=0` leaves that out.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",  # made anew by each build, never committed
    "filename_pattern": r"\.py$",  # all of them run
    "ignore_pattern": "__init__",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "min_reported_time": 10_000,  # never: seconds differ from build to build
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "capture_repr": (),  # examples print what they have to say
    "image_srcset": ["2x"],
    "thumbnail_size": (660, 440),
    "matplotlib_animations": False,
    "plot_gallery": "True",
}

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types and shapes
napoleon_google_docstring = False
napoleon_use_rtype = False


def escape_bars(app, what, name, obj, options, lines):
    """|x| is a length in the docstrings; reStructuredText would take it for a substitution."""
    for number, line in enumerate(lines):
        if line.strip() == "Examples":
            return
        lines[number] = re.sub(r"(?<!\\)\|", r"\\|", line)


def restore_properties(app, what, name, obj, options, lines):
    """Napoleon reads "Volume: length, area" at a property as a type and its description; it is a sentence."""
    if what == "property":
        lines[:] = (inspect.getdoc(obj) or "").splitlines()
        escape_bars(app, what, name, obj, options, lines)


def skip_requests(app, what, name, obj, skip, options):
    """Methods that scikit-learn adds for its metadata routing, with links into its own pages."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def write_inline_math(writer, node):
    """MathML is drawn by the browser itself; MathJax would be fetched from the network."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_display_math(writer, node):
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


# "../../examples/NAME.py", as seen from a page of the guide -> what comes before "examples", the name.
EXAMPLE = re.compile(r"\((?P<up>(?:\.\./)*)\.\./examples/(?P<name>\w+)\.py\)")
LIVE = '<a href="torus.html">A page to click on</a>: the torus of this example.'


def link_to_the_gallery(app, name, source):
    """Where pages are read as files they link to the examples; here, to their pages in the gallery."""
    text = EXAMPLE.sub(r"(\g<up>gallery/\g<name>.rst)", source[0])
    source[0] = text.replace("(../examples)", "(gallery/index.rst)").replace("<!-- live page -->", LIVE)


def write_live_page(app, error):
    """A page of the explorer beside the documentation."""
    if error is None and app.builder.format == "html":
        features = ManifoldRandomFeatures(HeatKernel(0.1), n_features=256, random_state=0).fit(Torus())
        explore(features, Path(app.outdir) / "torus.html", title="Heat on a torus")


def setup(app):
    app.connect("source-read", link_to_the_gallery)
    app.connect("build-finished", write_live_page)
    app.add_html_math_renderer("mathml", (write_inline_math, None), (write_display_math, None))
    app.connect("autodoc-skip-member", skip_requests)
    app.connect("autodoc-process-docstring", escape_bars, priority=400)  # napoleon runs at 500
    app.connect("autodoc-process-docstring", restore_properties, priority=600)
