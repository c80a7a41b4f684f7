/* What attention in float32 is given, and products of queries in lanes with listed keys. A thread takes whole heads of
 * whole sentences, or blocks of queries, so that no sum depends on their number. */

/* A matrix for each sentence and head, of rows with adjacent numbers; strides in numbers */
typedef struct {
    float *data;
    long sentence, head, row;
} Matrices;

typedef struct {
    long sentences, heads, queries, keys, size; /* size: numbers in a query, a key, a value */
    float scale;                                /* of the scores */
    const float *epsilon;                       /* (heads,) */
    const uint8_t *padding;                     /* (sentences, keys), 1 is left out; or null */
    const float *mask;                          /* (queries, keys), added to the scores; or null */
    long causal;                                /* query i sees the keys up to i + keys - queries */
    Dropout dropout;
} Shape;

typedef struct {
    Matrices query, key, value, grad; /* grad: of the output */
    Matrices for_query, for_key, for_value;
    double *for_alpha; /* (sentences, heads), or null */
} Gradients;

static inline float *matrix(const Matrices *m, long sentence, long head)
{
    return m->data + sentence * m->sentence + head * m->head;
}

/* Never 0 */
static inline vec epsilon_of(const Shape *shape, long head)
{
    return all(shape->epsilon[head] < LEAST_EPSILON ? LEAST_EPSILON : shape->epsilon[head]);
}

#define TILE 8

/* out[i] = sum over c of lanes[c] y[listed[i]][c]: a product of the rows in the lanes with listed ones */
static inline void dot_listed(const vec *restrict lanes, long size, const float *y, long stride,
                              const int32_t *listed, long length, vec *restrict out)
{
    for (long i = 0; i < length; i += TILE) {
        vec sum[TILE] = {{0}};
        const float *row[TILE];
        for (int t = 0; t < TILE; t++) row[t] = y + listed[smaller(i + t, length - 1)] * stride;
        for (long c = 0; c < size; c++)
            for (int t = 0; t < TILE; t++) sum[t] += lanes[c] * row[t][c];
        for (int t = 0; t < TILE; t++) out[i + t] = sum[t];
    }
}

/* out[c] = sum over i of weights[i] y[listed[i]][c]: a mixture of listed rows for each lane */
static inline void mix_listed(const vec *restrict weights, const float *y, long stride, const int32_t *listed,
                              long length, long size, vec *restrict out)
{
    long c = 0;
    for (; c + TILE <= size; c += TILE) {
        vec sum[TILE] = {{0}};
        for (long i = 0; i < length; i++) {
            const float *row = y + listed[i] * stride + c;
            for (int t = 0; t < TILE; t++) sum[t] += weights[i] * row[t];
        }
        for (int t = 0; t < TILE; t++) out[c + t] = sum[t];
    }
    for (; c < size; c++) {
        vec sum = {0};
        for (long i = 0; i < length; i++) sum += weights[i] * y[listed[i] * stride + c];
        out[c] = sum;
    }
}
