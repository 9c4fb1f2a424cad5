import numpy as np
import pytest

from mt.data.collate import collate, pad_source


def test_a_batch_by_hand():
    batch = collate([np.array([7, 8]), np.array([9])], [np.array([], dtype=np.int32), np.array([5, 6, 7])])
    assert batch.source.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert batch.target_in.tolist() == [[2, 0, 0, 0], [2, 5, 6, 7]]
    assert batch.target_out.tolist() == [[3, 0, 0, 0], [5, 6, 7, 3]]
    assert batch.target_tokens == 5 and batch.real.tolist() == [0, 4, 5, 6, 7]


def test_both_sides_must_have_the_same_number_of_sentences():
    with pytest.raises(ValueError):
        collate([np.array([7])], [np.array([7]), np.array([8])])


def test_stored_16_bit_ids_do_not_overflow():
    assert pad_source([np.array([65535], dtype=np.uint16)]).tolist() == [[65535, 3]]
