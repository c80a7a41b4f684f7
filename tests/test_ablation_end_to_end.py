"""A removal of heads translates as ``fairseq-generate`` does with the pruned checkpoint."""

import json

from fairseq_entmax.head_names import parse_heads
from fairseq_entmax.pruning import prune_checkpoint
from tests.commands import generate, hypotheses, run

HEADS = "decoder-self:0.0,0.1,0.3;cross:1.2"
SEARCH = ["--beam=3", "--max-len-b=12", "--remove-bpe=sentencepiece", "--gen-subset=test"]


def test_a_removal_translates_like_the_pruned_checkpoint(data, trained, tmp_path):
    checkpoint, small = trained / "checkpoint_last.pt", tmp_path / "small.pt"
    path = ["--path", checkpoint, "--output", tmp_path / "out", "--cpu"]
    run("fairseq-entmax", "ablate", data / "bin", *path, *SEARCH, "--sets", HEADS)
    prune_checkpoint(str(checkpoint), str(small), parse_heads(HEADS))
    lines = (tmp_path / "out" / "removals.jsonl").read_text(encoding="utf-8").splitlines()
    found = {len(one.get("heads", [])): one for one in map(json.loads, lines) if "heads" in one}
    for number, file in ((0, checkpoint), (4, small)):
        texts = hypotheses(generate(data, file, *SEARCH, "--sacrebleu").stdout)
        assert found[number]["translations"] == [texts[f"H-{n}"] for n in range(len(texts))]
