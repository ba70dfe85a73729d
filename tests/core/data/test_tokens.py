import shutil

import numpy as np
import pytest
import torch

from course_utils.data.glosses import DESCRIPTION, GLOSSES
from course_utils.data.tokens import (
    END,
    LONGEST,
    SPECIAL,
    TOKENIZER,
    LengthSampler,
    encode_texts,
    make_tokenizer,
    pad_texts,
    read_tokenizer,
)
from course_utils.errors import CourseError
from course_utils.models.text_small import TextSmall

WORDS = ["a small animal", "a small plant", "an animal that eats plants", "the animal"] * 20


def sample(lengths, batch_size=4, seed=0):
    return LengthSampler(lengths, batch_size, torch.Generator().manual_seed(seed))


def test_special_tokens_have_their_numbers():
    tokenizer = make_tokenizer(WORDS, 60)
    assert [tokenizer.token_to_id(name) for name in SPECIAL] == [0, 1, 2, 3]
    assert tokenizer.to_str() == make_tokenizer(WORDS, 60).to_str()


def test_a_text_comes_back_from_its_tokens():
    tokenizer = make_tokenizer(WORDS, 60)
    [tokens] = encode_texts(tokenizer, ["A Small ANIMÁL"])
    assert tokens.dtype == np.int64
    assert tokens[-1] == END
    assert tokenizer.decode(tokens[:-1].tolist()) == "a small animal"


def test_the_end_of_a_long_text_is_cut_off():
    [tokens] = encode_texts(make_tokenizer(WORDS, 60), ["animal " * 500])
    assert len(tokens) == LONGEST
    assert tokens[-1] == END


def test_letters_that_were_never_seen_are_unknown():
    [tokens] = encode_texts(make_tokenizer(WORDS, 60), ["🦊"])
    assert SPECIAL.index("[UNK]") in tokens


def test_short_texts_are_filled_up_behind():
    padded = pad_texts([np.array([5, 6, 2]), np.array([7, 2])])
    assert padded.tolist() == [[5, 6, 2], [7, 2, 0]]


def test_an_epoch_holds_each_text_once_and_only_full_batches():
    order = list(sample(range(10)))
    assert len(order) == len(sample(range(10))) == 8
    assert len(set(order)) == 8


def test_epochs_and_seeds_differ_and_one_seed_repeats():
    lengths = list(range(40))
    one = sample(lengths)
    first, second = list(one), list(one)
    assert first != second
    assert first == list(sample(lengths))
    assert first != list(sample(lengths, seed=1))


def test_batches_hold_similar_lengths():
    lengths = np.random.default_rng(0).integers(2, 100, 400)
    order = np.array(list(sample(lengths, batch_size=20)))
    padded = lengths[order].reshape(-1, 20).max(1).sum() * 20
    assert padded < 1.1 * lengths.sum()
    shuffled = lengths.reshape(-1, 20).max(1).sum() * 20
    assert shuffled > 1.5 * lengths.sum()


def test_the_order_does_not_rise_with_the_length():
    lengths = np.arange(400)
    starts = lengths[list(sample(lengths))][::4]
    assert abs(np.corrcoef(starts, np.arange(len(starts)))[0, 1]) < 0.4


@pytest.mark.parametrize(("change", "said"), [(None, "is missing"), (b" ", "is damaged")])
def test_a_damaged_tokenizer_is_one_line(tmp_path, change, said):
    for name in (DESCRIPTION, TOKENIZER):
        shutil.copy(GLOSSES / name, tmp_path)
    assert read_tokenizer(tmp_path).get_vocab_size() == TextSmall().tokens.num_embeddings
    path = tmp_path / TOKENIZER
    if change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + change)
    with pytest.raises(CourseError, match=rf"tokenizer\.json {said}.*: restore it"):
        read_tokenizer(tmp_path)


def test_a_text_is_no_longer_than_the_network_has_positions():
    assert TextSmall().positions.num_embeddings == LONGEST
