/* Arguments of float32 attention, and products of queries (one per lane) with a list of keys. A thread takes whole
 * heads of a sentence, blocks of queries or ranges of keys, so no sum depends on the number of threads. */

/* A matrix for each sentence and head, with dense rows; sentence, head and row are strides, in numbers */
typedef struct {
    float *data;
    long sentence, head, row;
} Matrices;

/* One of these matrices, or its rows from a given one on */
typedef struct {
    float *data;
    long row;
} Matrix;

/* A head: its sentence, its number in the sentence, and its place among all heads of all sentences */
typedef struct {
    long sentence, number, place;
} Head;

typedef struct {
    long sentences, heads, queries, keys, size; /* size: of each query, key and value */
    float scale;                                /* of the scores */
    const float *epsilon;                       /* (heads,) */
    const uint8_t *padding;                     /* (sentences, keys), 1 at padding; or null */
    const float *mask;                          /* (queries, keys), added to the scores; or null */
    long causal;                                /* if not 0, query i sees the keys up to i + keys - queries */
    Dropout dropout;
} Shape;

typedef struct {
    Matrices query, key, value, output;
} Attention;

/* The keys in the support and their probabilities, query after query: a query's begin at its start */
typedef struct {
    int64_t *starts; /* (sentences, heads, queries rounded up to a multiple of LANES), and where the last one ends */
    int32_t *keys;
    float *probs;
} Support;

typedef struct {
    Matrices query, key, value, grad; /* grad: the gradient of the output */
    Matrices for_query, for_key, for_value;
    double *for_alpha;           /* (sentences, heads), or null */
    float *for_scores, *weights; /* scratch, as long as the support; weights: after dropout, null without it */
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

/* The epsilon of a head, never 0; NaN stays */
static inline vec epsilon_of(const Shape *shape, Head head)
{
    return all(shape->epsilon[head.number] < LEAST_EPSILON ? LEAST_EPSILON : shape->epsilon[head.number]);
}

/* The `number` rows of a matrix that a list names, in its order */
typedef struct {
    Matrix all;
    const int32_t *list;
    long number;
} Listed;

/* PAIR blocks of queries share each read of a key. TILE: how many sums each of one or two blocks keeps in registers. */
#define PAIR 2
#define MOST_TILE 8
#define TILE(blocks) ((blocks) == PAIR && LANES < 16 ? 6 : MOST_TILE)
#define EACH_SUM(tile)               \
    for (int t = 0; t < (tile); t++) \
        for (int b = 0; b < blocks; b++)

static inline __attribute__((always_inline)) void dot_tiles(const int blocks, const vec *restrict lanes, long size,
                                                            Listed rows, vec *restrict out, long apart)
{
    const int tile = TILE(blocks);
    for (long i = 0; i < rows.number; i += tile) {
        vec sum[MOST_TILE][PAIR] = {{{0}}};
        const float *row[MOST_TILE];
        for (int t = 0; t < tile; t++) row[t] = row_of(rows.all, rows.list[smaller(i + t, rows.number - 1)]);
        for (long c = 0; c < size; c++) EACH_SUM(tile) sum[t][b] += lanes[b * up_to_lanes(size) + c] * row[t][c];
        EACH_SUM(tile) out[b * apart + i + t] = sum[t][b];
    }
}

/* out[i] = sum over c of lanes[c] * row_i[c]: the product of each row in the lanes with each listed row, for one block,
 * or for two whose outputs are `apart` vectors from each other. Writes fewer than MOST_TILE vectors behind them. */
static inline void dot_listed(int blocks, const vec *lanes, long size, Listed rows, vec *out, long apart)
{
    if (blocks < PAIR) dot_tiles(1, lanes, size, rows, out, apart);
    else dot_tiles(PAIR, lanes, size, rows, out, apart);
}

static inline __attribute__((always_inline)) void mix_tiles(const int blocks, const int tile, const vec *restrict weights,
                                                            long apart, Listed rows, long size, vec *restrict out)
{
    for (long first = 0; first < size; first += tile) {
        long c = smaller(first, size - tile); /* the last overlaps the one before */
        vec sum[MOST_TILE][PAIR] = {{{0}}};
        Matrix part = {rows.all.data + c, rows.all.row};
        for (long i = 0; i < rows.number; i++) {
            const float *row = row_of(part, rows.list[i]);
            EACH_SUM(tile) sum[t][b] += weights[b * apart + i] * row[t];
        }
        EACH_SUM(tile) out[b * up_to_lanes(size) + c + t] = sum[t][b];
    }
}

/* out[c] = sum over i of weights[i] * row_i[c]: a weighted sum of the listed rows for each lane, for one block, or for
 * two whose weights are `apart` vectors from each other */
static inline void mix_listed(int blocks, const vec *weights, long apart, Listed rows, long size, vec *out)
{
    blocks = smaller(blocks, PAIR);
    if (size < MOST_TILE) mix_tiles(blocks, 1, weights, apart, rows, size, out);
    else if (blocks < PAIR) mix_tiles(1, TILE(1), weights, apart, rows, size, out);
    else mix_tiles(PAIR, TILE(PAIR), weights, apart, rows, size, out);
}
