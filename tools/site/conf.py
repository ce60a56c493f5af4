"""Sphinx's settings of the site."""

import json
from pathlib import Path

from tools.site.sidebar import USERS, audience_of, sidebar

project = "rlcore"
author = "the rlcore authors"
copyright = "the rlcore authors"  # Sphinx reads this name
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "rlcore"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes = False  # flags begin with two hyphens
copybutton_prompt_text = "$ "


def setup(app):
    """Connect the sidebar, before the theme asks for the one of Sphinx."""
    app.connect("html-page-context", _add_sidebar, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_sidebar(app, pagename, templatename, context, doctree):
    """Put the sidebar into a page, and its audience above the text of a page that is not for users."""
    sections = json.loads((Path(app.srcdir) / "sections.json").read_text(encoding="utf-8"))
    titles = {page: title.astext() for page, title in app.env.titles.items()}

    def tree(**options):
        return sidebar(sections, titles, pagename, lambda page: app.builder.get_relative_uri(pagename, page))

    context["toctree"] = tree
    audience = audience_of(sections, pagename)
    if audience != USERS and "body" in context:
        context["body"] = f'<p class="audience-of-page">{audience}</p>{context["body"]}'
