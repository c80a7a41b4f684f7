"""A stub for fairseq's commands in a recipe: it logs its call, and writes what the next step reads.

stub.py LOG COMMAND ARGUMENT...
"""

import json
import struct
import sys
from pathlib import Path

HEADS = {"encoder-self": "2,1", "decoder-self": "1,2", "cross": "2,2"}


def value(words: list[str], option: str, default: str = "") -> str:
    """The last value of an option."""
    found = default
    for number, word in enumerate(words):
        if word.startswith(f"{option}="):
            found = word.partition("=")[2]
        elif word == option:
            found = words[number + 1]
    return found


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def preprocess(words: list[str]) -> None:
    """Write dictionaries, and indices in fairseq's mmap format with the lengths of the lines."""
    folder = Path(value(words, "--destdir"))
    folder.mkdir(parents=True, exist_ok=True)
    sides = [value(words, f"--{side}-lang") for side in ("source", "target")]
    known = value(words, "--srcdict")
    for side in sides if sides[0] else [""]:
        own = set()
        for split in ("train", "valid", "test"):
            for number, prefix in enumerate(value(words, f"--{split}pref").split(",")):
                text = lines(Path(f"{prefix}.{side}" if side else prefix))
                own |= {word for line in text for word in line.split()}
                sizes = [len(line.split()) + 1 for line in text]
                name = split + (f"{number}" if number else "")
                stem = folder / (f"{name}.{'-'.join(sides)}.{side}" if side else name)
                Path(f"{stem}.bin").write_bytes(f"{stem.name}{text}".encode())
                header = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, 4, len(sizes))
                Path(f"{stem}.idx").write_bytes(header + struct.pack(f"<{len(sizes)}i", *sizes))
        entries = lines(Path(known)) if known else [f"{word} 1" for word in sorted(own)]
        dictionary = "".join(f"{line}\n" for line in entries)
        write(folder / (f"dict.{side}.txt" if side else "dict.txt"), dictionary)


def train(words: list[str]) -> None:
    import zipfile  # imported here, because it takes as long as the rest of the stub

    folder = Path(value(words, "--save-dir"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("options", " ".join(words))
    updates = value(words, "--max-update", "10")
    print(f"| valid | epoch 001 | loss 5 | nll_loss 4 | num_updates {updates}")


def generate(words: list[str]) -> None:
    """Write the target text, in another order, and with commas as words."""
    subset, target = value(words, "--gen-subset"), value(words, "--target-lang")
    split = {"test": "test", "test1": "duc2004"}[subset]
    texts = lines(Path(words[0]).parent / "text" / f"{split}.{target}")
    found = [f"H-{number}\t-0.5\t{text.replace(',', ' ,')}\n" for number, text in enumerate(texts)]
    write(Path(value(words, "--results-path")) / f"generate-{subset}.txt", "".join(found[::-1]))


def eval_lm(words: list[str]) -> None:
    content = (Path(words[0]) / "test.idx").read_bytes()
    (count,) = struct.unpack("<Q", content[18:26])
    for number, size in enumerate(struct.unpack(f"<{count}i", content[26 : 26 + 4 * count])):
        print(f"INFO:fairseq_cli.eval_lm:{number} " + "\t".join(["a [-1.0]"] * size))


def entmax(words: list[str]) -> None:
    command, output = words[0], Path(value(words, "--output", "/dev/null"))
    if command == "user-dir":
        print("/user/dir")
    elif command == "alpha":
        print(f"alpha of {words[1]}")
    elif words[:2] == ["prune", "--print-config"]:
        print(" ".join(f"--{name}-attn-heads {counts}" for name, counts in HEADS.items()))
    elif command == "prune":
        write(output, f"pruned {words[1]}")
    elif words[:2] == ["oov", "vocabulary"]:
        markers = "".join(f"<unk-{number}> 1\n" for number in range(int(value(words, "--markers"))))
        write(output, f"the 9\n{markers}")
    elif words[:2] == ["oov", "mark"]:
        for side in ("source", "target"):
            text = Path(value(words, f"--{side}")).read_text("utf-8")
            write(Path(value(words, f"--output-{side}")), text)
    elif words[:2] == ["oov", "restore"]:
        write(output, Path(words[2]).read_text("utf-8"))
    elif command == "rouge":
        scores = {f"rouge{kind}": {"f1": {"value": 30, "low": 29, "high": 31}} for kind in "12L"}
        compared = {"value": 31, "change": 1, "low": 0, "high": 2, "p_bootstrap": 0.5}
        other = dict.fromkeys(scores, compared) if "--compare" in words else None
        document = json.dumps({"settings": {"statistic": "f1"}, "compared": other, **scores})
        if output.name != "null":
            write(output, document)
        print(document if "--json" in words else "ROUGE-1  30.00 [29.00, 31.00]")
    elif command in ("analyze", "ablate"):
        write(output / ("analysis.json" if command == "analyze" else "ablation.json"), "{}")
    elif command in ("report", "tag"):
        write(output, "a page, or parses")


def sacrebleu(words: list[str]) -> None:
    print("  BLEU|nrefs:1 = 24.50 55.1/30.2\nchrF2|nrefs:1 = 45.60")


def tool(words: list[str]) -> None:
    """Replace the project's own programs that need torch."""
    name = Path(words[0]).name
    if name == "pruning_table.py":
        rows = [line.rstrip("\n").split("\t")[:2] for line in sys.stdin]
        print("mapping\tmodel\n" + "\n".join(map("\t".join, rows)))
    elif name == "predictions.py" and words[1] == "speed":
        print("model\texamples per second")
    elif name == "predictions.py":
        for line in lines(Path(words[3]).parent / "text" / "test.input0"):
            selected = [[line.split()[0], 1]]
            print(json.dumps({"predicted": "old", "words": 1, "selected": selected}))
    elif name == "pruned_generation.py":
        write(Path(value(words, "--json")), "{}")
    elif words[0:2] == ["-m", "claims"]:
        write(Path(value(words, "--output")) / "claims.md", "verdicts")
    elif name == "claims_record.py" and words[1] == "run":
        write(Path(words[2]) / f"{value(words, '--run')}.json.xz", "packed")
    elif name == "claims_speed.py":
        write(Path(words[1]), "{}")


OF_FAIRSEQ = {"preprocess": preprocess, "train": train, "generate": generate}
OF_FAIRSEQ |= {"eval-lm": eval_lm, "entmax": entmax}
COMMANDS = {f"fairseq-{name}": stub for name, stub in OF_FAIRSEQ.items()}
COMMANDS |= {"torchrun": train, "sacrebleu": sacrebleu, "python3": tool}


def main() -> None:
    log, command, *words = sys.argv[1:]
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps([command, *words]) + "\n")
    COMMANDS[command](words)


if __name__ == "__main__":
    main()
