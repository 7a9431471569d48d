"""A saved g: the same answers, no pickle, and nothing but the layers of the studies."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bifkit.storage import BadFile, write
from experiments.models.classifiers import mlp, paper_g
from experiments.models.saved import load_model, save_model

MODELS = {"mlp": lambda: mlp([5, 8, 8, 2]), "dropout": lambda: mlp([5, 8, 1], dropout=0.2, activation="selu"),
          "BatchNorm": lambda: mlp([5, 8, 2], batch_norm=True, activation="tanh"), "authors": lambda: paper_g(5, 2)}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_network_answers_as_the_saved_one(name, tmp_path):
    model = MODELS[name]()
    X = torch.randn(50, 5)
    model(X)  # BatchNorm's statistics are no longer those of a new network
    save_model(model, tmp_path / "g.safetensors")
    loaded = load_model(tmp_path / "g.safetensors")
    torch.testing.assert_close(loaded(X), model.eval()(X), rtol=0, atol=0)
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())
    by_others = load_file(tmp_path / "g.safetensors")  # any reader of safetensors sees the weights
    assert all(torch.equal(by_others[k], v) for k, v in model.state_dict().items())


def test_what_the_file_would_not_hold_is_refused(tmp_path):
    for model in (nn.Linear(2, 2), nn.Sequential(nn.Sigmoid()), nn.Sequential(nn.Linear(2, 2, bias=False))):
        with pytest.raises(TypeError):
            save_model(model, tmp_path / "g.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layers", [[["Module"]], [["Linear", 2]], [["Linear", 10**9, 10**9]], [["Linear", 3, 2]],
                                    [["Linear", -1, 2]], [["Linear", "2", 2]], [["Dropout", "x"]], "Linear", None,
                                    [["__class__"]], [["Linear", 2, 2], ["Linear", 2, 2]]])
def test_a_strangers_file_is_refused(layers, tmp_path):
    arrays = {"0.weight": np.zeros((2, 2), "float32"), "0.bias": np.zeros(2, "float32")}
    write(tmp_path / "g.safetensors", "Sequential", arrays, {"layers": layers})
    with pytest.raises(BadFile):
        load_model(tmp_path / "g.safetensors")


def test_a_damaged_file_is_refused(tmp_path):
    file = tmp_path / "g.safetensors"
    save_model(mlp([2, 3, 2]), file)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(BadFile):
        load_model(file)
