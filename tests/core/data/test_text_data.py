import pickle

import numpy as np
import pytest
import torch

from course_utils.config import load_config
from course_utils.data.glosses import read_split
from course_utils.data.load import load_data
from course_utils.data.text_data import TextData
from course_utils.data.tokens import encode_texts
from course_utils.errors import CourseError
from course_utils.models.text_small import PADDING


@pytest.fixture(scope="module")
def data():
    return load_data(load_config("smoke", dataset="glosses"))


def test_glosses_are_texts_of_ten_classes(data):
    assert isinstance(data, TextData)
    assert data.num_classes == 10
    assert "animal" in data.class_names
    assert np.bincount(data.train.targets).tolist() == [32] * 10
    assert data.describe().startswith("glosses: 320 training and 200 validation texts of 10")
    assert data.summarize()["vocabulary"] == data.tokenizer.get_vocab_size() == 4096


def test_no_text_is_in_two_splits(data):
    texts = [tuple(text) for part in (data.train, data.val) for text in part.tokens]
    texts += [tuple(text) for text in data.open_test().tokens]
    assert len(set(texts)) == len(texts)


def test_the_pretraining_has_no_test_definition(data):
    others = encode_texts(data.tokenizer, [text for _, text in read_split("pretraining")])
    seen = {tuple(text) for text in others}
    assert not seen & {tuple(text) for text in data.open_test().tokens}


def test_a_batch_is_padded_to_its_longest_text(data):
    tokens, targets = next(iter(data.train_loader()))
    assert tokens.shape[0] == len(targets) == data.batch_size
    assert tokens.dtype == targets.dtype == torch.int64
    lengths = (tokens != PADDING).sum(dim=1)
    assert lengths.max() == tokens.shape[1]
    for row, target in zip(tokens, targets, strict=True):
        text = row[row != PADDING].numpy()
        assert any(
            np.array_equal(text, one) and target == label
            for one, label in zip(data.train.tokens, data.train.targets, strict=True)
        )


def test_validation_keeps_its_order(data):
    found = torch.cat([targets for _, targets in data.eval_loader()])
    assert found.tolist() == data.val.targets.tolist()
    few = next(iter(data.eval_loader(data.open_test())))
    assert len(few[0]) == 256


def test_one_seed_makes_the_same_batches(data):
    one, again, other = (
        torch.cat([targets for _, targets in data.train_loader(seed)]).tolist()
        for seed in (0, 0, 1)
    )
    assert one == again != other


def test_a_part_of_the_training_texts(data):
    few = data.take_train(20)
    assert np.bincount(few.train.targets).tolist() == [2] * 10
    assert few.batch_size == 20
    assert len(list(few.train_loader())) == 1
    with pytest.raises(CourseError, match=r"5 training texts leave out .*: take more"):
        data.take_train(5)


def test_it_can_be_sent_to_another_process(data):
    sent = pickle.loads(pickle.dumps(data))
    assert len(sent.train_loader()) == len(data.train_loader())
