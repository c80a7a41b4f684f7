"""Small texts, and the output of fairseq-generate."""

LOG = "2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading model(s)\n"


def printed(sentences, order=None):
    """What fairseq-generate prints, given number to (source, target, hypotheses, best first)."""
    lines = [LOG]
    for number in order or sorted(sentences):
        source, target, *hypotheses = sentences[number]
        lines += [f"S-{number}\t{source}\n", f"T-{number}\t{target}\n"]
        for rank, hypothesis in enumerate(hypotheses):
            lines.append(f"H-{number}\t-{rank}.5\t{hypothesis}\n")
            lines.append(f"D-{number}\t-{rank}.5\t{hypothesis}\n")
            lines.append(f"P-{number}\t-0.1000 -0.2000\n")
    return "".join([*lines, "Generate test with beam=5: BLEU4 = 1.00\n"])


def written(folder, **texts):
    """Write files with these texts, and return a dict from name to path."""
    paths = {}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        paths[name] = str(folder / name)
    return paths
