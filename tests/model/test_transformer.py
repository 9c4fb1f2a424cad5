"""The model gives the numbers of torch's own layers, and does not depend on padding, neighbours or caches."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from mt.config.schema import Activation, Init, ModelConfig, Norm, Positions, Tie
from mt.model import attention
from mt.model.transformer import Dropout, Transformer, sinusoids

# Unusual sizes and different depths, so that swapped dimensions cause an error
CONFIG = ModelConfig(d_model=14, d_ff=23, heads=7, encoder_layers=3, decoder_layers=2, dropout=0.0)
VARIANTS = [
    CONFIG,
    replace(CONFIG, norm=Norm.post),
    replace(CONFIG, positions=Positions.learned, max_positions=41),
    replace(CONFIG, activation=Activation.gelu, tie=Tie.output),
    replace(CONFIG, tie=Tie.none, init=Init.depth_scaled),
]


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def make(config=CONFIG, size=19):
    torch.manual_seed(3)
    model = Transformer(config, size, size).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # the initial zeros would hide a wrong bias
            torch.nn.init.normal_(parameter, std=0.3)
    return model


SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [11, 12, 13, 3, 0]])
TARGET = torch.tensor([[2, 5, 6, 7], [2, 8, 0, 0], [2, 9, 10, 0]])
TARGET_LENGTHS = [4, 2, 3]


def torch_layers(model):
    """The same weights in torch's own encoder and decoder layers."""
    config = model.config
    options = {
        "d_model": config.d_model,
        "nhead": config.heads,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": config.activation.value,
        "batch_first": True,
        "norm_first": config.norm is Norm.pre,
    }

    def copy_attention(ours, theirs):
        theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key_value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, torch.zeros(2 * config.d_model))))
        theirs.out_proj.load_state_dict(ours.output.state_dict())

    encoder = [nn.TransformerEncoderLayer(**options) for _ in model.encoder]
    decoder = [nn.TransformerDecoderLayer(**options) for _ in model.decoder]
    with torch.no_grad():
        for ours, theirs in zip(model.encoder, encoder, strict=True):
            copy_attention(ours.attention, theirs.self_attn)
            theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
            theirs.norm2.load_state_dict(ours.around_feed_forward.norm.state_dict())
        for ours, theirs in zip(model.decoder, decoder, strict=True):
            copy_attention(ours.self_attention, theirs.self_attn)
            copy_attention(ours.cross_attention, theirs.multihead_attn)
            theirs.norm1.load_state_dict(ours.around_self.norm.state_dict())
            theirs.norm2.load_state_dict(ours.around_cross.norm.state_dict())
            theirs.norm3.load_state_dict(ours.around_feed_forward.norm.state_dict())
        for ours, theirs in (*zip(model.encoder, encoder, strict=True), *zip(model.decoder, decoder, strict=True)):
            theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())
    return encoder, decoder


@pytest.mark.parametrize("config", VARIANTS[:4], ids=["pre", "post", "learned", "gelu"])
def test_the_same_numbers_as_torchs_own_layers(config):
    model = make(config)
    encoder, decoder = torch_layers(model)
    padding = SOURCE == 0
    x = model.source_embedding(SOURCE)
    for layer in encoder:
        x = layer.train()(x, src_key_padding_mask=padding)  # train mode (dropout 0) avoids the fused path
    memory = model.encoder_norm(x)
    y = model.target_embedding(TARGET)
    causal = nn.Transformer.generate_square_subsequent_mask(TARGET.shape[1])
    for layer in decoder:
        y = layer.train()(y, memory, tgt_mask=causal, memory_key_padding_mask=padding)
    expected = model.decoder_norm(y)
    found = model(SOURCE, TARGET)
    for row, length in enumerate(TARGET_LENGTHS):
        torch.testing.assert_close(found[row, :length], expected[row, :length], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", VARIANTS)
def test_padding_and_neighbours_do_not_matter(config):
    model = make(config)
    together = model(SOURCE, TARGET)
    for row, (source_length, target_length) in enumerate(zip((5, 2, 4), TARGET_LENGTHS, strict=True)):
        alone = model(SOURCE[row : row + 1, :source_length], TARGET[row : row + 1, :target_length])
        torch.testing.assert_close(together[row, :target_length], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", VARIANTS)
def test_short_and_long_sentences_take_different_paths_to_the_same_numbers(config, monkeypatch):
    model = make(config)
    plain = model(SOURCE, TARGET)
    monkeypatch.setattr(attention, "SHORT", 0)  # the fused kernel
    torch.testing.assert_close(model(SOURCE, TARGET), plain)


def test_a_later_target_token_changes_nothing_before_it():
    model = make()
    changed = TARGET.clone()
    changed[0, 3] = 17
    torch.testing.assert_close(model(SOURCE, TARGET)[0, :3], model(SOURCE, changed)[0, :3])


@pytest.mark.parametrize("config", VARIANTS)
def test_steps_with_caches_equal_the_whole_prefix(config):
    model = make(config)
    states = model(SOURCE, TARGET)
    state = model.start(SOURCE)
    for position in range(TARGET.shape[1]):
        logits, state = model.step(TARGET[:, position], state)
        for row, length in enumerate(TARGET_LENGTHS):
            if position < length:
                expected = model.logits(states[row, position])
                torch.testing.assert_close(logits[row], expected, rtol=1e-4, atol=1e-5)


def test_a_selected_state_goes_on_as_the_selected_rows():
    model = make()
    _, state = model.step(TARGET[:, 0], model.start(SOURCE))
    # Beams that swap rows within a sentence, drop a row, and swap sentences
    for rows in ([2, 0, 2], [0, 0, 1, 1, 2, 2], [1, 0, 2, 2, 5, 4], [0, 2, 3, 4, 5], [3, 4, 0, 1]):
        picked = torch.tensor(rows)
        tokens = torch.arange(5, 5 + len(state.memory.mask))
        whole, _ = model.step(tokens, state)
        selected = state.select(picked)
        found, after = model.step(tokens[picked], selected)
        torch.testing.assert_close(found, whole[picked])
        state = after


def test_beams_that_change_places_within_their_sentence_copy_no_source():
    model = make()
    state = model.start(SOURCE).select(torch.tensor([0, 0, 1, 1, 2]))
    assert state.select(torch.tensor([1, 0, 2, 2, 4])).memory is state.memory
    assert state.select(torch.tensor([0, 0, 1, 2, 4])).memory is not state.memory


def test_a_source_without_a_real_token_harms_nobody():
    model = make()
    source = SOURCE.clone()
    source[1] = 0
    found = model(source, TARGET)
    assert torch.isfinite(found[[0, 2]]).all()
    torch.testing.assert_close(found[[0, 2]], model(SOURCE, TARGET)[[0, 2]])


def test_sinusoids_by_hand_and_for_any_length():
    table = sinusoids(3, 2, 6)
    angles = [3 * 10000 ** (-i / 6) for i in (0, 2, 4)]
    assert table[0].tolist() == pytest.approx([*map(math.sin, angles), *map(math.cos, angles)], abs=1e-6)
    assert torch.equal(sinusoids(0, 5000, 6)[4999], sinusoids(4999, 1, 6)[0])


def test_learned_positions_end():
    model = make(replace(CONFIG, positions=Positions.learned, max_positions=3))
    with pytest.raises(ValueError, match="3"):
        model(SOURCE, TARGET)


@pytest.mark.parametrize(("tie", "matrices"), [(Tie.all, 1), (Tie.output, 2), (Tie.none, 3)])
def test_tying_is_sharing_a_parameter(tie, matrices):
    model = make(replace(CONFIG, tie=tie))
    found = {id(m.weight) for m in (model.source_embedding.tokens, model.target_embedding.tokens, model.output)}
    assert len(found) == matrices
    total = sum(parameter.numel() for parameter in model.parameters())
    attention, forward, norm = 4 * 14 * 14 + 2 * 14, 2 * 14 * 23 + 14 + 23, 2 * 14
    layers = 3 * (attention + forward + 2 * norm) + 2 * (2 * attention + forward + 3 * norm) + 2 * norm
    assert total == layers + matrices * 19 * 14


def test_untrained_predictions_are_near_uniform():
    torch.manual_seed(1)
    model = Transformer(ModelConfig(d_model=128, d_ff=256, heads=4, dropout=0.0), 1000, 1000).eval()
    ids = torch.randint(4, 1000, (8, 20))
    logits = model.logits(model(ids, ids))
    assert 0.7 < float(logits.std()) < 1.4
    assert float(logits.log_softmax(-1).mean()) == pytest.approx(-math.log(1000), abs=1.2)
    assert not model.target_embedding.tokens.weight[0].any()


def test_projections_are_xavier_each_by_itself_and_depth_scaling_divides():
    plain = make(replace(CONFIG, tie=Tie.none)).encoder[0]
    bound = (6 / 28) ** 0.5
    assert float(plain.attention.key_value.weight.abs().max()) == pytest.approx(bound, rel=0.1)
    scaled = make(VARIANTS[4])
    for stack, residuals in ((scaled.encoder, 6), (scaled.decoder, 6)):
        largest = float(stack[0].feed_forward.output.weight.abs().max())
        assert largest == pytest.approx((6 / 37 / residuals) ** 0.5, rel=0.1)


def test_impossible_models_are_refused():
    with pytest.raises(ValueError, match="heads=5"):
        Transformer(replace(CONFIG, heads=5), 19, 19)
    with pytest.raises(ValueError, match="19 and 20"):
        Transformer(CONFIG, 19, 20)


def test_bf16_products_stay_near_float32():
    model = make(replace(CONFIG, d_model=70))
    exact = model(SOURCE, TARGET)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(SOURCE, TARGET)
    assert 0 < float((rough - exact)[0].abs().max()) < 0.15


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_dropout_rate_and_mean(rate):
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


@torch.enable_grad()
def test_the_gradient_goes_where_the_value_went():
    torch.manual_seed(0)
    x = torch.ones(100, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_dropout_does_nothing_in_evaluation_or_at_rate_zero_and_no_random_number_is_drawn():
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
