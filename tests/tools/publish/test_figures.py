"""Alternative texts: what a figure shows, in words."""

import nbformat
import pytest

from course_tools.publish.figures import describe_figures


def describe(source, *below):
    cell = nbformat.v4.new_code_cell(source)
    cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": "AAAA"})]
    texts = [nbformat.v4.new_markdown_cell(text) for text in below]
    heading = nbformat.v4.new_markdown_cell("### Which decay?")
    notebook = nbformat.v4.new_notebook(cells=[heading, cell, *texts])
    describe_figures(notebook)
    [output] = cell.outputs
    assert cell.metadata["mystnb"]["image"]["alt"] == output.metadata["image/png"]["alt"]
    return output.metadata["image/png"]["alt"]


@pytest.mark.parametrize(
    ("source", "below", "alt"),
    [
        (
            'axis.set_title("A small α leaves batches alone")',
            "Read.",
            "A small α leaves batches alone",
        ),
        ("figure.suptitle(\n 'The same average, drawn')", "Read.", "The same average, drawn"),
        ('axis.set_title("mixup")', "At $\\alpha$ see [05](05.ipynb). More.", "At alpha see 05."),
        (
            'axis.set_title(f"{x} points with mixup in all")',
            "**One** dot is a seed.",
            "One dot is a seed.",
        ),
        ("plt.show()", "## From scratch\n\nA function.", "Figure of the section Which decay?"),
    ],
)
def test_an_alternative_text_is_the_title_or_the_sentence_below(source, below, alt):
    assert describe(source, below) == alt
