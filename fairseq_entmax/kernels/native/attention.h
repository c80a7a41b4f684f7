/* What attention in float32 is given, and products of queries in lanes with listed keys. A thread takes whole heads of
 * whole sentences, or blocks of queries, so that no sum depends on their number. */

/* A matrix for each sentence and head, of rows with adjacent numbers; strides in numbers */
typedef struct {
    float *data;
    long sentence, head, row;
} Matrices;

/* One of them, or its rows from one on */
typedef struct {
    float *data;
    long row;
} Matrix;

/* A head of a sentence, and its place among all heads of all sentences */
typedef struct {
    long sentence, number, place;
} Head;

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
    Matrices query, key, value, output;
} Attention;

/* The keys with a probability: of one query after the other, each from its start to that of the next */
typedef struct {
    int64_t *starts; /* (sentences, heads, queries up to a multiple of LANES), and where the last one ends */
    int32_t *keys;
    float *probs;
} Support;

typedef struct {
    Matrices query, key, value, grad; /* grad: of the output */
    Matrices for_query, for_key, for_value;
    double *for_alpha;           /* (sentences, heads), or null */
    float *for_scores, *weights; /* as long as the support, written to; weights: after dropout, null without it */
} Gradients;

static inline Head head_at(const Shape *shape, long i) { return (Head){i / shape->heads, i % shape->heads, i}; }

/* The matrix of a head from row `first` on */
static inline Matrix matrix(const Matrices *m, Head head, long first)
{
    return (Matrix){m->data + head.sentence * m->sentence + head.number * m->head + first * m->row, m->row};
}

static inline float *row_of(Matrix m, long i) { return m.data + i * m.row; }

/* Where the support of each query of a head starts */
static inline const int64_t *starts_of(const Support *support, const Shape *shape, Head head)
{
    return support->starts + head.place * up_to_lanes(shape->queries);
}

/* Never 0 */
static inline vec epsilon_of(const Shape *shape, Head head)
{
    return all(shape->epsilon[head.number] < LEAST_EPSILON ? LEAST_EPSILON : shape->epsilon[head.number]);
}

#define TILE 8

/* out[i] = sum over c of lanes[c] y[listed[i]][c]: a product of the rows in the lanes with listed ones */
static inline void dot_listed(const vec *restrict lanes, long size, Matrix y, const int32_t *listed, long length,
                              vec *restrict out)
{
    for (long i = 0; i < length; i += TILE) {
        vec sum[TILE] = {{0}};
        const float *row[TILE];
        for (int t = 0; t < TILE; t++) row[t] = row_of(y, listed[smaller(i + t, length - 1)]);
        for (long c = 0; c < size; c++)
            for (int t = 0; t < TILE; t++) sum[t] += lanes[c] * row[t][c];
        for (int t = 0; t < TILE; t++) out[i + t] = sum[t];
    }
}

/* out[c] = sum over i of weights[i] y[listed[i]][c]: a mixture of listed rows for each lane */
static inline void mix_listed(const vec *restrict weights, Matrix y, const int32_t *listed, long length, long size,
                              vec *restrict out)
{
    long c = 0;
    for (; c + TILE <= size; c += TILE) {
        vec sum[TILE] = {{0}};
        for (long i = 0; i < length; i++) {
            const float *row = row_of(y, listed[i]) + c;
            for (int t = 0; t < TILE; t++) sum[t] += weights[i] * row[t];
        }
        for (int t = 0; t < TILE; t++) out[c + t] = sum[t];
    }
    for (; c < size; c++) {
        vec sum = {0};
        for (long i = 0; i < length; i++) sum += weights[i] * row_of(y, listed[i])[c];
        out[c] = sum;
    }
}
