"""What data/README.md states is what its description and the stored results say."""

import numpy as np

from course_utils.data.photos import describe_photos
from course_utils.files import ROOT
from course_utils.results import RESULTS, read_file


def test_the_readme_states_what_the_description_says():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    about = describe_photos()
    for split, value in about["psnr_db"].items():
        assert f"{value} dB" in text, split
    assert f"seed {about['seed']}" in text


def test_the_readme_states_what_the_benchmark_measured():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    found = read_file(RESULTS / "photos_format_2cores.json")
    low, high = found["interval_points"]
    assert low < 0 < high, "trainings differ by the format: say so in the README"
    assert f"is {found['difference_points']:+.2f} points" in text
    assert f"a 95 % interval of {low:+.2f} to {high:+.2f}" in text
    places = {"files": "the pixels of the archive", "sheets": "those of the sheets"}
    for variant, place in places.items():
        assert f"{np.mean(found['accuracy'][variant]):.1f} % on {place}" in text
