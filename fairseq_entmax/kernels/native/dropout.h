/* Dropout of weights, decided by a seed and by the number of each weight, with the random words of kernels/dropout.py.
 *
 * So the backward pass drops what the forward pass dropped, on any number of threads.
 */

typedef struct {
    int64_t seed;
    uint32_t least_word; /* a weight is kept if its first word is at least this */
    float factor;        /* multiplies the weights that are kept; 0 without dropout */
} Dropout;

/* Words in the lower halves of 64-bit numbers, for half as many weights as a vector has lanes */
typedef uint64_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t word_vec __attribute__((vector_size(4 * LANES)));

/* The products of the lower halves; the upper halves are ignored */
#ifdef X86
static inline words times(words a, words b) { return (words)X86(mul_epu32)((x86_ivec)a, (x86_ivec)b); }
#else
static inline words times(words a, words b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif

/* The first word that Philox 4x32 with ten rounds makes of each 64-bit number (Salmon, Moraes, Dror, Shaw 2011). It is
 * in the lower half; the upper half is undefined. */
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

/* The factors of the weights with the numbers first + offsets: dropout->factor, or 0 */
static inline vec dropout_factors(const Dropout *dropout, int64_t first, ivec offsets)
{
    const uint64_t low = 0xffffffffu;
    /* Even and odd lanes apart, so that no word moves to another lane */
    words one = ((words)offsets & low) + (uint64_t)first, other = ((words)offsets >> 32) + (uint64_t)first;
    one = first_words(one, dropout->seed), other = first_words(other, dropout->seed);
    word_vec found = (word_vec)((one & low) | (other << 32));
    return ZERO_UNLESS((ivec)(found >= dropout->least_word), all(dropout->factor));
}

/* weights = probs times the factors of the numbers first + offsets; `grads`, unless null, is multiplied by them too */
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
