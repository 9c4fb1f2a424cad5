"""The chunked loss has the values and gradients of torch's cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from mt.training import loss as module
from mt.training.loss import label_smoothed_loss

PAD = 0


def non_padding(targets):
    return (targets != PAD).flatten().nonzero()[:, 0]


def example(dtype=torch.float64, rows=7, width=11, states=5, vocabulary=13):
    torch.manual_seed(2)
    x = torch.randn(rows, width, states, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, states, dtype=dtype, requires_grad=True)
    targets = torch.randint(1, vocabulary, (rows, width))
    targets[2, 4:] = PAD
    targets[5, 1:] = PAD
    return x, weight, targets


@pytest.mark.parametrize("chunk", [1, 40, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_values_and_gradients_are_torchs(monkeypatch, smoothing, chunk):
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", chunk)
    x, weight, targets = example()
    found = label_smoothed_loss(x, weight, targets, smoothing, non_padding(targets))
    (found.smoothed / 3).backward()
    gradients = x.grad.clone(), weight.grad.clone()
    x.grad = weight.grad = None
    logits = (x @ weight.T).flatten(0, 1)
    options = {"ignore_index": PAD, "reduction": "sum"}
    expected = F.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing, **options)
    (expected / 3).backward()
    torch.testing.assert_close(found.smoothed, expected)
    torch.testing.assert_close(found.nll, F.cross_entropy(logits, targets.flatten(), **options))
    torch.testing.assert_close(gradients[0], x.grad)
    torch.testing.assert_close(gradients[1], weight.grad)
    assert not found.nll.requires_grad


def test_more_padding_changes_nothing():
    x, weight, targets = example()
    wide = torch.cat((targets, torch.zeros(7, 20, dtype=torch.long)), 1)
    padded = torch.cat((x, torch.randn(7, 20, 5, dtype=torch.float64)), 1)
    one, other = (label_smoothed_loss(s, weight, t, 0.1, non_padding(t)) for s, t in ((x, targets), (padded, wide)))
    torch.testing.assert_close(one.smoothed, other.smoothed)
    torch.testing.assert_close(one.nll, other.nll)


def test_by_hand():
    """Two classes, logits 0 and ln 3: probabilities 1/4 and 3/4."""
    weight = torch.tensor([[0.0], [1.0986123]], requires_grad=True)
    found = label_smoothed_loss(torch.ones(1, 1, 1), weight, torch.tensor([[1]]), 0.2, non_padding(torch.tensor([[1]])))
    ln = 0.2876821  # -ln(3/4)
    assert float(found.nll) == pytest.approx(ln)
    assert float(found.smoothed.detach()) == pytest.approx(0.9 * ln + 0.1 * 1.3862944)


def test_nll_does_not_depend_on_smoothing():
    x, weight, targets = example()
    values = {float(label_smoothed_loss(x, weight, targets, s, non_padding(targets)).nll) for s in (0.0, 0.1)}
    assert len(values) == 1


def test_float32_is_near_float64_and_bf16_products_near_float32():
    x, weight, targets = example()
    exact = label_smoothed_loss(x, weight, targets, 0.1, non_padding(targets))
    x32, weight32 = x.detach().float().requires_grad_(), weight.detach().float().requires_grad_()
    found = label_smoothed_loss(x32, weight32, targets, 0.1, non_padding(targets))
    expected = float(exact.smoothed.detach())
    assert float(found.smoothed.detach()) == pytest.approx(expected, rel=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = label_smoothed_loss(x32, weight32, targets, 0.1, non_padding(targets))
    assert float(rough.smoothed.detach()) == pytest.approx(expected, rel=0.02)
    assert float(rough.smoothed.detach()) != float(found.smoothed.detach())
    rough.smoothed.backward()
    exact.smoothed.backward()
    torch.testing.assert_close(weight32.grad.double(), weight.grad, rtol=0.1, atol=0.3)


def test_bf16_products_keep_the_gradient_of_a_model_that_is_nearly_right():
    """If the softmax is close to the target distribution, their small difference must be accurate."""
    weight = torch.randn(13, 5, dtype=torch.float64)
    targets = torch.randint(1, 13, (40, 1))
    x = 6 * weight[targets] / weight[targets].norm(dim=-1, keepdim=True)
    found = []
    for dtype in (torch.float64, torch.float32):
        states, matrix = (tensor.detach().to(dtype).requires_grad_() for tensor in (x, weight))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
            label_smoothed_loss(states, matrix, targets, 0.0, non_padding(targets)).smoothed.backward()
        found.append((states.grad.double(), matrix.grad.double()))
    for exact, rough in zip(*found, strict=True):
        assert float((exact - rough).norm() / exact.norm()) < 0.02


def test_no_gradient_is_made_where_none_is_wanted(monkeypatch):
    x, weight, targets = example()
    monkeypatch.setattr(torch, "zeros_like", None)  # would allocate the gradient
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            assert not label_smoothed_loss(x, weight, targets, 0.1, non_padding(targets)).smoothed.requires_grad


def test_float16_autocast_computes_the_loss_in_float32():
    x, weight, targets = example(dtype=torch.float32)
    exact = label_smoothed_loss(x, weight, targets, 0.1, non_padding(targets))
    with torch.autocast("cpu", dtype=torch.float16):
        found = label_smoothed_loss(x, weight, targets, 0.1, non_padding(targets))
    assert float(found.smoothed.detach()) == float(exact.smoothed.detach())


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="this torch has no linear_cross_entropy")
def test_it_is_torchs_linear_cross_entropy_plus_the_smoothing_term():
    x, weight, targets = example(dtype=torch.float32)
    kept = non_padding(targets)
    rows, tokens, smoothing = x.flatten(0, 1)[kept], targets.flatten()[kept], 0.1
    nll = F.linear_cross_entropy(rows, weight, tokens, reduction="sum")
    uniform = -(rows @ weight.T).log_softmax(-1).mean(-1).sum()
    expected = (1 - smoothing) * nll + smoothing * uniform
    found = label_smoothed_loss(x, weight, targets, smoothing, kept)
    assert float(found.smoothed.detach()) == pytest.approx(float(expected.detach()), rel=5e-7)
    gradients = [torch.autograd.grad(loss, (x, weight)) for loss in (found.smoothed, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


def test_a_batch_without_a_token_that_counts_has_no_loss_and_no_gradient():
    """A process without a sentence joins the backward pass with such a batch."""
    x, weight, targets = example()
    found = label_smoothed_loss(x, weight, targets, 0.1, non_padding(targets)[:0])
    found.smoothed.backward()
    assert float(found.smoothed.detach()) == float(found.nll) == 0
    assert not x.grad.any() and not weight.grad.any()
