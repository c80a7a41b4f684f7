/* Scores of queries with few keys, for attention_rows.h: the queries are in the lanes, so that keys are read where
 * they are. Packing them pays only where many blocks of queries share it.
 */

/* So few keys are not packed */
#define FEW_TO_PACK 160
/* Keys side by side in a product */
#define BESIDE 8

/* Number c of LANES rows into vector c, missing rows 0 */
static inline void rows_into_lanes(const float *rows, long stride, int count, long size, float scale, vec *lanes)
{
    long first = 0;
    for (; count == LANES && first + LANES <= size; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = vec_at(rows + k * stride + first) * scale;
        turn(square);
        for (int k = 0; k < LANES; k++) lanes[first + k] = square[k];
    }
    for (; first < size; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++)
            square[k] = k < count ? load_part(rows + k * stride + first, size - first, 0.0f) * scale : all(0.0f);
        turn(square);
        for (int k = 0; k < LANES; k++) lanes[first + k] = square[k];
    }
}

/* out[i] = the products of the rows in the lanes with row listed[i] of y. Writes up to BESIDE vectors behind. */
static inline void multiply_lanes(const vec *restrict lanes, long size, const float *y, long stride,
                                  const int32_t *listed, long number, vec *restrict out)
{
    for (long i = 0; i < number; i += BESIDE) {
        vec sum[BESIDE] = {{0}};
        const float *row[BESIDE];
        for (int t = 0; t < BESIDE; t++) row[t] = y + listed[smaller(i + t, number - 1)] * stride;
        for (long c = 0; c < size; c++)
            for (int t = 0; t < BESIDE; t++) sum[t] += lanes[c] * row[t][c];
        for (int t = 0; t < BESIDE; t++) out[i + t] = sum[t];
    }
}

/* `number` vectors to rows of LANES and more numbers, up to whole vectors */
static inline void lanes_into_rows(const vec *lanes, long number, float *rows, long stride)
{
    for (long first = 0; first < number; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
        turn(square);
        for (int k = 0; k < LANES; k++) *(given_vec *)(rows + k * stride + first) = square[k];
    }
}
