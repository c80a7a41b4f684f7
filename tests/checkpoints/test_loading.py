"""Reading files as checkpoints, and what a model takes from them."""

from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from fairseq_entmax import checkpoints
from fairseq_entmax.fairseq_patches.optimizer_state import restoring_grown_models
from tests.support import build_model

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool]


@pytest.mark.parametrize("zipped", [True, False])
def test_fairseqs_checkpoints_are_read_in_both_formats(zipped, tmp_path):
    values = {
        "settings": Namespace(a=[1, (2.5, None)], b={"c": True}, d=2**70),
        "weights": build_model().state_dict(),  # with torch's _metadata
        "tensors": [torch.nn.Parameter(torch.ones(2)), torch.get_rng_state(), torch.zeros(0, 5)],
        "views": [torch.arange(60).to(dtype)[3:50:2] for dtype in DTYPES],
    }
    array = np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3))
    values["metrics"] = [("valid", {"best": np.float64(0.5), "n": (np.int64(7), array)})]
    values["shared"] = {}
    for _ in range(60):
        values["shared"] = dict.fromkeys("ab", values["shared"])
    values["counts"] = Counter(a=3)
    path = tmp_path / "a.pt"
    state = {"model": {}, "extra_state": values}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    loaded = checkpoints.load_checkpoint(str(path))["extra_state"]
    assert loaded["settings"] == values["settings"]
    assert loaded["weights"]._metadata == values["weights"]._metadata
    best = {"best": 0.5, "n": (7, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])}
    assert repr(loaded["metrics"]) == repr([("valid", best)])
    assert (loaded["counts"], loaded["shared"]["a"]) == ({"a": 3}, loaded["shared"]["b"])
    for name in ("tensors", "views"):
        torch.testing.assert_close(loaded[name], values[name], atol=0, rtol=0)


def test_arrays_of_anything_but_numbers_are_refused(tmp_path):
    for value in (["a"], [None], np.zeros(2, "f8,i4"), np.datetime64("2020")):
        torch.save({"model": {}, "best": np.array(value)}, tmp_path / "a.pt")
        with pytest.raises(checkpoints.UnsafeCheckpointError, match="it has an array of "):
            checkpoints.load_checkpoint(str(tmp_path / "a.pt"))


@pytest.mark.parametrize(
    "load", [checkpoint_utils.load_checkpoint_to_cpu, checkpoints.load_checkpoint]
)
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"A sentence a line,\ni.e. a text.\n", "Виж\n".encode()),
        *(b"PK\x03\x04 cut off", b"\x80\x02}q", b"\x1f\x8b\x08\x00\x00"),
    ],
)
def test_a_file_that_is_no_checkpoint_gives_a_one_line_error_with_its_name(tmp_path, content, load):
    path = tmp_path / "broken.pt"
    path.write_bytes(content)
    message = r"broken\.pt: it is not a check"
    with pytest.raises(checkpoints.UnsafeCheckpointError, match=message) as refusal:
        load(str(path))
    assert "\n" not in str(refusal.value)
    torch.save([1, 2, 3], path)
    with pytest.raises(ValueError, match="not a fairseq checkpoint"):
        checkpoints.load_checkpoint(str(path))


def test_nan_or_missing_weights_are_refused_by_name():
    state = build_model(seed=5).state_dict()
    name = "decoder.layers.1.encoder_attn.mapping.alpha_logit"
    state[name][2] = float("nan")
    with pytest.raises(ValueError, match=rf"has NaN for {name}: .* earlier checkpoint"):
        build_model(seed=6).load_state_dict(state)
    state = build_model("transformer").state_dict()
    del state["encoder.layers.0.fc1.weight"]
    message = r"weights do not fit .*Missing key.*encoder\.layers\.0\.fc1\.weight"
    with pytest.raises(ValueError, match=message):
        build_model().load_state_dict(state)


def test_a_flat_optimizer_state_of_another_size_is_refused_with_the_remedy():
    def flat_adam(size):
        parameter = torch.nn.Parameter(torch.zeros(size))
        config = OmegaConf.structured(FairseqAdamConfig(lr=[0.01], tpu=False))
        parameter.grad = torch.ones(size)
        return FairseqAdam(config, [parameter])

    saved, same = flat_adam(10), flat_adam(10)
    saved.step()
    refusal = r"10 parameters, but the model has 12.*--reset-optimizer"
    with restoring_grown_models(), pytest.raises(ValueError, match=refusal):
        flat_adam(12).load_state_dict(saved.state_dict())
    with restoring_grown_models():
        same.load_state_dict(saved.state_dict())
    assert len(same.optimizer.state) == 1
