import pytest
import torch

from mt.model.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_rate_and_mean(rate):
    torch.manual_seed(0)
    x = torch.ones(1001, 997)
    dropped = Dropout(rate)(x)
    assert float((dropped == 0).float().mean()) == pytest.approx(round(256 * rate) / 256, abs=2e-3)
    assert float(dropped.mean()) == pytest.approx(1, abs=3e-3)
    assert dropped.unique().numel() == 2


def test_neighbouring_elements_are_independent():
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(2**20)) != 0).float() - 0.5
    for distance in (1, 2, 4, 7, 8, 9, 64):
        assert abs(float((kept[distance:] * kept[:-distance]).mean())) < 2e-3


def test_the_gradient_goes_where_the_value_went():
    torch.manual_seed(0)
    x = torch.ones(100, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_nothing_in_evaluation_or_at_rate_zero_and_no_random_number_is_drawn():
    x = torch.randn(5)
    before = torch.get_rng_state()
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_repeats_from_the_same_seed():
    torch.manual_seed(7)
    first = Dropout(0.3)(torch.ones(50))
    torch.manual_seed(7)
    assert torch.equal(Dropout(0.3)(torch.ones(50)), first)
