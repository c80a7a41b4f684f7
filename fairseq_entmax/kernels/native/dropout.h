/* Dropout of weights, by a seed and by where a weight stands: the words of kernels/dropout.py.
 *
 * A backward pass finds again what the forward pass dropped, on any number of threads.
 */

typedef struct {
    int64_t seed;
    uint32_t least_word; /* the first word of a weight that stays is no less */
    float factor;        /* of those that stay; 0 where there is no dropout */
} Dropout;

/* Words in the lower halves of 64 bits: of half as many weights as a vector has lanes */
typedef uint64_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t word_vec __attribute__((vector_size(4 * LANES)));

/* The products of the lower halves, whatever stands in the upper ones */
#ifdef X86
static inline words times(words a, words b) { return (words)X86(mul_epu32)((x86_ivec)a, (x86_ivec)b); }
#else
static inline words times(words a, words b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif

/* The first words of Philox 4x32 of ten rounds, in the lower halves, of numbers in 64 bits (Salmon, Moraes, Dror,
 * Shaw 2011) */
static inline words first_words(words number, int64_t seed)
{
    words c0 = number, c1 = number >> 32, c2 = {0}, c3 = {0};
    const words first_factor = (words){0} + 0xD2511F53u, second_factor = (words){0} + 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    for (int round = 0; round < 10; round++) {
        words first = times(c0, first_factor), second = times(c2, second_factor);
        c0 = (second >> 32) ^ c1 ^ k0;
        c1 = second;
        c2 = (first >> 32) ^ c3 ^ k1;
        c3 = first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

/* What the weights with the numbers first + offsets are multiplied by */
static inline vec dropout_factors(const Dropout *dropout, int64_t first, ivec offsets)
{
    const uint64_t low = 0xffffffffu;
    /* Every other one: so no word moves to another lane */
    words one = ((words)offsets & low) + (uint64_t)first, other = ((words)offsets >> 32) + (uint64_t)first;
    one = first_words(one, dropout->seed), other = first_words(other, dropout->seed);
    word_vec found = (word_vec)((one & low) | (other << 32));
    return ZERO_UNLESS((ivec)(found >= dropout->least_word), all(dropout->factor));
}

/* weights = probs times what dropout makes of those with the numbers first + offsets; `grads`, if not null, times
 * the same */
static void drop(const Dropout *dropout, int64_t first, const int32_t *offsets, long number, const float *probs,
                 float *weights, float *grads)
{
    for (long i = 0; i < number; i += LANES) {
        ivec some = {0};
        memcpy(&some, offsets + i, smaller(number - i, LANES) * sizeof *offsets);
        vec factors = dropout_factors(dropout, first, some);
        store_part(load_part(probs + i, number - i, 0.0f) * factors, weights + i, number - i);
        if (grads) store_part(load_part(grads + i, number - i, 0.0f) * factors, grads + i, number - i);
    }
}
