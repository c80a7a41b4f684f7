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

/* Rows of a matrix in the order of a list */
typedef struct {
    Matrix all;
    const int32_t *list;
    long number;
} Listed;

/* Blocks of queries that share what is read of a key, and as many sums for each of one or two as there are registers */
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

/* out[i] = sum over c of lanes[c] times number c of row i: a product of the rows in the lanes with listed ones. Of two
 * blocks, or of one, whose outputs are `apart`; writes less than MOST_TILE behind them. */
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

/* out[c] = sum over i of weights[i] times number c of row i: a mixture of listed rows for each lane of two blocks, or of
 * one, whose weights are `apart` */
static inline void mix_listed(int blocks, const vec *weights, long apart, Listed rows, long size, vec *out)
{
    blocks = smaller(blocks, PAIR);
    if (size < MOST_TILE) mix_tiles(blocks, 1, weights, apart, rows, size, out);
    else if (blocks < PAIR) mix_tiles(1, TILE(1), weights, apart, rows, size, out);
    else mix_tiles(PAIR, TILE(PAIR), weights, apart, rows, size, out);
}
