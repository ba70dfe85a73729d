"""Sphinx's settings of the course's site: no page asks a server, nothing depends on a clock."""

project = "Training neural networks effectively"
author = "the authors of the course"
copyright = author
extensions = ["myst_nb"]
exclude_patterns = ["build", "_extra"]
language = "en"
locale_dirs = ["locale"]
gettext_compact = "course"  # one catalogue for each language

nb_execution_mode = "off"  # the outputs are those stored in the notebooks
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
myst_heading_slug_func = "course_tools.publish.site.make_anchor"  # as JupyterLab makes them
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["course.css"]
html_js_files = ["course.js"]
html_show_sphinx = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for local files
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0060a8", "color-brand-content": "#0060a8"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"options": {"enableMenu": False}}  # it would load more than is there
