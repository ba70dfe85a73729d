"""Pages that a command writes from a template of Jinja."""

from pathlib import Path

import jinja2

__all__ = ["render_page"]


def render_page(template: Path, **values: object) -> str:
    """The HTML that a template gives; texts are escaped unless they are `markupsafe.Markup`.

    Raises:
        jinja2.UndefinedError: the template uses a value that it was not given.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template.name).render(**values)
