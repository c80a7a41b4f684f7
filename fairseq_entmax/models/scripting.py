"""Models in TorchScript and ONNX.

If TorchScript cannot compile fairseq's own class, a class here takes its place.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer_lm import TransformerLanguageModel
from torch import Tensor

from fairseq_entmax.attention.scripting import Scriptable, scriptable
from fairseq_entmax.criterions.sparse_output import SOFTMAX


class ForInference(Scriptable):
    """Mixin for models of this package; list it before fairseq's class among the bases."""

    def scriptable_form(self: Any) -> Any:
        """A model of fairseq's class for ``torch.jit.script`` and ONNX, for inference."""
        if self.output_alpha != SOFTMAX:
            raise ValueError(
                f"a model with --output-alpha {self.output_alpha:g} cannot be scripted or exported as a "
                f"whole: fairseq's scripted search fails an assertion if words have probability "
                f"zero; script model.encoder and model.decoder, which return the scores, or generate "
                f"with fairseq-generate"
            )
        model: Any = Scriptable.scriptable_form(self)
        # Only training needs these, and a seed may be too large for TorchScript's integers
        for name in ("attention_options", "monitor", "_seed", "_passes"):
            model.__dict__.pop(name, None)
        model._modules.pop("pruning_state", None)
        return model

    def prepare_for_onnx_export_(self: Any, **kwargs: Any) -> None:
        """Prepare the model, in place, for export to ONNX; it can no longer be trained."""
        self._modules.update(scriptable(self)._modules)
        super().prepare_for_onnx_export_(**kwargs)  # type: ignore[misc]


class ScriptableLanguageModel(TransformerLanguageModel):
    """fairseq's ``transformer_lm`` without the ``**kwargs`` of its ``forward``."""

    # It is a set, a type that TorchScript lacks
    __jit_unused_properties__ = ("supported_targets",)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Scores of the next word, ``(batch, tokens, words)``, and a dictionary, as in fairseq."""
        return self.decoder(src_tokens, incremental_state=incremental_state)

    @torch.jit.export
    def get_normalized_probs(
        self,
        net_output: Tuple[Tensor, Optional[Dict[str, List[Optional[Tensor]]]]],
        log_probs: bool,
        sample: Optional[Dict[str, Tensor]] = None,
    ) -> Any:
        """Probabilities of words ``(batch, tokens, words)``, or their logarithms."""
        return self.get_normalized_probs_scriptable(net_output, log_probs, sample)
