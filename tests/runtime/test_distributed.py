"""With one process, every collective returns its input. Tests of several processes are in tests/system."""

import pytest
import torch

from mt.errors import UserError
from mt.runtime import distributed

CPU = torch.device("cpu")


def test_one_process_is_the_first_of_one():
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    assert (distributed.local_rank(), distributed.local_world_size(), distributed.launched()) == (0, 1, False)


def test_one_process_of_a_launcher_is_not_joined(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert distributed.launched()
    distributed.join(gpu=False)
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    assert not torch.distributed.is_initialized()


def test_the_model_is_trained_as_it_is():
    model = torch.nn.Linear(2, 3)
    assert distributed.data_parallel(model, CPU) is model
    for wanted in (True, False):
        with distributed.sync_gradients(model, wanted):
            model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(model.bias.grad, torch.full((3,), 2.0))


def test_numbers_and_objects_come_back_as_they_are():
    for reduced in (distributed.all_reduce([1, 2.5]), distributed.all_reduce([1, 2.5], distributed.MAX)):
        assert reduced == [1.0, 2.5] and all(type(value) is float for value in reduced)
    assert distributed.all_gather({"a": 1}) == [{"a": 1}]
    distributed.barrier()


@pytest.mark.parametrize("share", [distributed.broadcast, distributed.rank_0_first])
def test_work_is_done_once_and_its_error_is_raised(share):
    calls = []
    assert share(lambda: calls.append(1) or "done") == "done"
    assert len(calls) == 1

    def fail():
        raise UserError("no such file")

    with pytest.raises(UserError, match="no such file"):
        share(fail)


def test_nobody_else_announces_a_stop():
    distributed.announce_stop(15)
    assert distributed.announced_stop() is None
    distributed.clear_stop()
    assert not distributed.lost_contact(RuntimeError("gloo: connection closed by peer"))
