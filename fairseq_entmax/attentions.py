"""The three attentions of a Transformer, named the same in options, logs and files."""

ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)
