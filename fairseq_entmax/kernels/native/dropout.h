/* Dropout of weights, by a seed and by where a weight stands: the words of kernels/dropout.py.
 *
 * A backward pass finds again what the forward pass dropped, on any number of threads.
 */

typedef struct {
    int64_t seed;
    uint32_t least_kept; /* the first word of a weight that stays is no less */
    float factor;        /* of those that stay; 0 where there is no dropout */
} Dropout;

/* Words in the lower halves of 64 bits: of half as many weights as a vector has lanes */
typedef uint64_t words __attribute__((vector_size(4 * LANES)));

/* The products of the lower halves, whatever stands in the upper ones */
#if LANES == 16 && defined(__AVX512F__)
static inline words times(words a, words b) { return (words)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif LANES == 8 && defined(__AVX2__)
static inline words times(words a, words b) { return (words)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#elif LANES == 4 && defined(__SSE2__)
static inline words times(words a, words b) { return (words)_mm_mul_epu32((__m128i)a, (__m128i)b); }
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

/* What the weights of LANES keys of a query, whose first key has a number, are multiplied by */
static inline vec dropout_factors(const Dropout *dropout, int64_t first, const int32_t *keys)
{
    enum { HALF = LANES / 2 };
    uint32_t found[LANES];
    words half[2];
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < HALF; k++) half[h][k] = first + keys[h * HALF + k];
    for (int h = 0; h < 2; h++) half[h] = first_words(half[h], dropout->seed);
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < HALF; k++) found[h * HALF + k] = half[h][k];
    float factors[LANES];
    for (int k = 0; k < LANES; k++) factors[k] = found[k] >= dropout->least_kept ? dropout->factor : 0.0f;
    return *(given_vec *)factors;
}

/* to = from times what dropout makes of the weights of `number` keys of a query; they may be the same */
static void drop_row(const Dropout *dropout, int64_t first, const int32_t *keys, long number, const float *from,
                     float *to)
{
    long i = 0;
    for (; i + LANES <= number; i += LANES)
        *(given_vec *)(to + i) = *(const given_vec *)(from + i) * dropout_factors(dropout, first, keys + i);
    if (i == number) return;
    int32_t rest[LANES] = {0};
    for (long k = 0; k < number - i; k++) rest[k] = keys[i + k];
    vec factors = dropout_factors(dropout, first, rest);
    for (long k = 0; k < number - i; k++) to[i + k] = from[i + k] * factors[k];
}
