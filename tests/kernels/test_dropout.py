"""Which weights are dropped: Philox against its published answer, and what models rely on."""

import pytest
import torch

from fairseq_entmax.kernels.dropout import factors, first_words, least_word


def test_random_words_match_philox():
    # The known answer in kat_vectors of Random123 (Salmon et al.) for philox4x32 with 10 rounds
    assert first_words(torch.tensor([0]), torch.tensor([0])).item() == 0x6627E8D5

    # And in Python's integers, which are signed and unbounded
    def philox(counter, key):
        for _ in range(10):
            first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = (
                (second >> 32) ^ counter[1] ^ key[0],
                second % 2**32,
                (first >> 32) ^ counter[3] ^ key[1],
                first % 2**32,
            )
            key = (key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32
        return counter[0]

    seeds = [0, 1, 2**32 - 1, 2**63 - 2, 0x123456789ABCDEF]
    numbers = [0, 1, 2**31, 2**32 - 1, 2**32, 2**45 + 12345]
    for seed in seeds:
        expected = [philox((n % 2**32, n >> 32, 0, 0), (seed % 2**32, seed >> 32)) for n in numbers]
        assert first_words(torch.tensor(numbers), torch.tensor([seed])).tolist() == expected


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_dropout_drops_the_given_share_and_keeps_the_mean(dropout):
    found = factors((4, 8, 50, 60), dropout, torch.tensor([7]), torch.device("cpu"))
    assert set(found.unique().tolist()) == {0.0, torch.tensor(1 / (1 - dropout)).item()}
    # Five standard errors
    error = 5 * (dropout * (1 - dropout) / found.numel()) ** 0.5
    assert (found == 0).double().mean().item() == pytest.approx(dropout, abs=error)


def test_the_least_word_stays_within_32_bits():
    assert least_word(0.0) == 0
    assert least_word(1 - 2**-40) == 2**32 - 1
