"""What lesson 24 says of its studies in words is what the studies found."""

import pytest

from course_utils.results import STUDIES, read_file
from lesson_code.deployment.changes import FAULT, Changes
from lesson_code.deployment.latency import PERCENTILES, Latencies

KINDS = ("photographs", "texts")
BITS = (2, 3, 4, 6, 8)


@pytest.fixture(scope="module")
def study():
    return Changes(read_file(STUDIES / "deployment/study.json"))


@pytest.fixture(scope="module")
def stored():
    return Latencies(read_file(STUDIES / "deployment/study_latency.json"))


@pytest.fixture(scope="module")
def extras():
    return read_file(STUDIES / "deployment/study_extras.json")


def test_it_has_all_changes_of_ten_networks_of_each_kind(study):
    for kind in KINDS:
        rows = [row for row in study.study["rows"] if row["kind"] == kind]
        assert sorted(row["seed"] for row in rows) == list(range(10))
        assert len({tuple(row["found"]) for row in rows}) == 1, "each change has ten seeds"
    assert study.study["num_val"] == 1000
    assert not study.study["commit"].endswith("+"), "the commit is a clean one"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["accuracy", "calibration_error"])
def test_int8_is_equivalent(study, kind, metric):
    found = study.difference(kind, "int8", metric)
    assert found.verdict(metric == "accuracy", 0.01) == "equivalent"


def test_bgr_costs_more_than_ten_points(study):
    assert study.difference("photographs", f"{FAULT}BGR").high < -0.1


def test_only_imagenets_normalisation_costs_little(study):
    *_, worst = faults = study.list_faults("photographs")
    small = [x for x in faults if study.difference("photographs", x).mean > -0.03]
    assert small == [f"{FAULT}ImageNet's mean and std"]
    assert all(study.difference("photographs", x).high < -0.01 for x in faults if x not in small)
    assert study.values("photographs", worst).mean() < 0.11, "guessing"


def test_not_normalised_costs_most_of_the_three_of_the_exercise(study):
    names = ("not normalised", "BGR", "resized to 36, middle 32")
    means = [study.difference("photographs", FAULT + name).mean for name in names]
    assert means == sorted(means)


@pytest.mark.parametrize("kind", KINDS)
def test_about_six_bits_are_enough(study, kind):
    found = {bits: study.difference(kind, f"{bits} bits, one scale per row") for bits in BITS}
    assert found[6].verdict() == found[8].verdict() == "equivalent"
    assert found[3].verdict() == found[2].verdict() == "hurts"


def test_calibration_matters_little(study):
    for change in ("int8, calibrated on 8", "int8, calibrated on noise"):
        assert abs(study.difference("photographs", change).mean) < 0.01


def test_faults_of_texts_cost_points(study):
    for fault in ("padded in front", "padded with [END]"):
        assert study.difference("texts", FAULT + fault).high < 0
    assert study.values("texts", f"{FAULT}token numbers plus one").mean() < 0.11


def test_linear_layers_in_int8_do_not_make_the_file_of_texts_a_quarter(study):
    fp32, int8 = (study.values("texts", form, "bytes")[0] for form in ("fp32", "int8"))
    assert 0.3 * fp32 < int8 < fp32


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_take_as_many_bytes_as_other_weights(study, kind):
    sizes = [study.values(kind, f"pruned, {share}", "bytes") for share in ("30%", "90%")]
    for size in sizes:
        assert (abs(size - study.values(kind, "fp32", "bytes")) < 2000).all()


def test_the_mirrored_photograph_is_worth_about_a_point(study):
    found = study.difference("photographs", "mirrored, too")
    assert found.low > 0
    assert 0.005 < found.mean < 0.015


def test_a_student_is_smaller_and_much_worse(study):
    gain = study.difference("photographs", "student, teacher", baseline="student, labels")
    assert gain.low > 0.01
    found = study.difference("photographs", "student, teacher", baseline="int8")
    assert found.high < -0.05
    sizes = [study.values("photographs", x, "bytes")[0] for x in ("student, teacher", "int8")]
    assert sizes[0] < sizes[1]


def test_packages_change_nothing_in_fp32_and_a_few_answers_in_int8(extras):
    found = extras["programs"]
    assert found["ONNX Runtime, fp32"]["agreement"] == 1
    names = ("torch.ao", "ONNX Runtime, int8", "torchao", "torchao, exported")
    assert all(0.95 < found[name]["agreement"] < 1 for name in names)
    assert found["torchao, exported"]["bytes"] > found["fp32"]["bytes"]
    assert extras["fastapi"]["same_status"] == extras["fastapi"]["requests"] >= 30


def test_int8_answers_photographs_faster(stored):
    assert stored.find_speed_up("photographs") > 1
    for kind in KINDS:
        for form in ("fp32", "int8"):
            for threads in (1, 2):
                ms = [stored.read(kind, form, p, threads) for p in PERCENTILES]
                assert ms == sorted(ms)


def test_a_larger_batch_takes_longer_and_gives_more_per_second(stored):
    for form in ("fp32", "int8"):
        sizes, ms = stored.list_batches("photographs", form)
        assert sizes == [1, 2, 4, 8, 16, 32, 64]
        assert ms[-1] > ms[0]
        assert sizes[-1] / ms[-1] > sizes[0] / ms[0]
