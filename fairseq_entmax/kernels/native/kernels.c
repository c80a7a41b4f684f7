/* Alpha-entmax, forward and backward, for fairseq_entmax.kernels.native.
 *
 * All is in float32, on rows LANES at a time (block.h, sieve.h, rows_f32.h): mappings, with structure too (structured.h;
 * their mathematics: prox.h, pnorm.h), the whole of attention (attention.h) with dropout of weights (dropout.h), that of
 * one query a hypothesis (decoding.h), and the loss of alpha-entmax, one row at a time (losses.h).
 * Vectors are those of GCC and Clang, which become the instructions that the machine has.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ITERATIONS 20

#include "vectors.h"
#include "block.h"
#include "sieve.h"
#include "prox.h"
#include "pnorm.h"
#include "structured.h"
#include "rows_f32.h"
#include "losses.h"
#include "dropout.h"
#include "attention.h"
#include "attention_short.h"
#include "attention_support.h"
#include "attention_rows.h"
#include "attention_dense.h"
#include "decoding.h"

/* What Python calls. Each function returns 0, or 1 where there is no memory.
 *
 * Mappings of rows, with structure or without. scores, probs, grad: (rows, n); masked: the same, or null where no key
 * is; grad_epsilon, grad_strength: (rows,). What is null of the gradients is not wanted.
 */

#define OF_ROWS                                                                                                    \
    int kind, const float *epsilon, long inner, long count, const float *strength, long strength_inner, long strength_count
#define OF_ROWS_GIVEN {epsilon, inner, count, strength, strength_inner, strength_count, kind}

int entmax_rows_forward(const float *scores, OF_ROWS, float *probs, long rows, long n, int threads)
{
    const OfRows of = OF_ROWS_GIVEN;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, of.kind ? STRUCTURED_ARRAYS : FORWARD_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(&of, row);
            forward_block(scores + row * n, &structure, probs + row * n, smaller(rows - row, LANES), n, &block);
        }
        free(block.memory);
    }
    return failed;
}

int entmax_rows_backward(const float *probs, OF_ROWS, const uint8_t *masked, const float *grad, float *grad_scores,
                         float *grad_epsilon, float *grad_strength, long rows, long n, int threads)
{
    const OfRows of = OF_ROWS_GIVEN;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, BACKWARD_ARRAYS);
        int sees = of.kind == TV && grad_strength;
        ivec *seen = sees ? aligned_alloc(sizeof(ivec), n * sizeof(ivec)) : 0;
        failed = !block.memory || (sees && !seen);
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(&of, row);
            backward_block(probs + row * n, &structure, masked ? masked + row * n : 0, grad + row * n,
                           grad_scores ? grad_scores + row * n : 0, grad_epsilon ? grad_epsilon + row : 0,
                           grad_strength ? grad_strength + row : 0, smaller(rows - row, LANES), n, seen, &block);
        }
        free(block.memory);
        free(seen);
    }
    return failed;
}

/* The loss of a target, in float32, as above. target, support: (rows,), int64; loss, target_prob, grad: (rows,);
 * of_rows: (rows, 4), what the backward pass needs of the forward pass. */
int entmax_loss_forward(const float *scores, const int64_t *target, double epsilon, double smoothing, float *loss,
                        int64_t *support, float *target_prob, LossRow *of_rows, long rows, long n, int threads)
{
    int failed = 0;
    const Loss of = make_loss(epsilon, smoothing);
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n / LANES + PARTS + 2, LOSS_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row++)
            if (!failed)
                loss_row(scores + row * n, n, target[row], &of, &block, loss + row, support + row, target_prob + row,
                         of_rows + row);
        free(block.memory);
    }
    return failed;
}

int entmax_loss_backward(const float *scores, const int64_t *target, double epsilon, double smoothing,
                         const float *target_prob, const LossRow *of_rows, const float *grad, float *grad_scores,
                         long rows, long n, int threads)
{
    const Loss of = make_loss(epsilon, smoothing);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long row = 0; row < rows; row++)
        loss_gradient_row(scores + row * n, n, target[row], target_prob[row], &of, of_rows + row, grad[row],
                          grad_scores + row * n);
    return 0;
}

/* Attention. Matrices are (data, sentence, head, row) with strides in numbers: query, key, value and output.
 *
 * The work of the forward pass is cut into blocks of LANES queries, of one head after the other. starts: (sentences,
 * heads, queries up to a multiple of LANES) and one more, where the support of each query starts and that of the last
 * ends; null if there is no backward pass. The keys of the support, int32, and their probabilities go to keys and
 * probs, if these are not null and as long as all can be; else pieces, one for each block and null before, gets memory
 * with those of its queries, which entmax_attention_take frees. */
int entmax_attention_forward(const Shape *shape, Matrices *query, Matrices *key, Matrices *value, Matrices *output,
                             int64_t *starts, void **pieces, int32_t *keys, float *probs, int threads)
{
    int failed = 0;
    long blocks = up_to_lanes(shape->queries) / LANES, all_blocks = shape->sentences * shape->heads * blocks;
    int64_t *places = keys ? malloc((all_blocks + 1) * sizeof(int64_t)) : 0, end = 0;
    if (keys && !places) return 1;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Rows rows;
        int64_t place = -1;
        failed = make_rows(&rows, shape, FORWARD_ARRAYS);
#pragma omp for schedule(static)
        for (long one = 0; one < all_blocks; one++) {
            int32_t numbers[LANES] = {0};
            long head = one / blocks, found = 0;
            if (!failed)
                found = attend_rows(shape, head / shape->heads, head % shape->heads, one % blocks * LANES, query, key,
                                    value, output, numbers, &rows);
            /* What a thread finds is one piece, which begins where it is if all before has all keys */
            if (keys && place < 0) place = (int64_t)one * LANES * shape->keys;
            if (keys) places[one] = place, place = store_support(&rows, found, keys, probs, place);
            else if (pieces && (pieces[one] = malloc((found + 1) * (sizeof(int32_t) + sizeof(float)))))
                store_support(&rows, found, pieces[one], (float *)pieces[one] + found, 0);
            else failed |= pieces != 0;
            for (int k = 0; k < LANES && starts; k++) starts[one * LANES + k + 1] = numbers[k];
        }
        free_rows(&rows);
    }
    for (long query = 0; query < all_blocks * LANES && starts; query++) starts[query + 1] += starts[query];
    for (long one = 0; one < all_blocks && keys; one++) {
        int64_t number = starts[(one + 1) * LANES] - starts[one * LANES];
        if (places[one] != end) {
            memmove(keys + end, keys + places[one], number * sizeof(int32_t));
            memmove(probs + end, probs + places[one], number * sizeof(float));
        }
        end += number;
    }
    free(places);
    return failed;
}

/* Frees what entmax_attention_forward kept of its blocks, after a copy of the keys and probabilities to where each
 * of its queries starts, if `keys` is not null. */
int entmax_attention_take(void **pieces, const int64_t *starts, long blocks, int32_t *keys, float *probs)
{
    for (long one = 0; one < blocks; one++) {
        if (keys && pieces[one]) {
            int64_t start = starts[one * LANES], number = starts[(one + 1) * LANES] - start;
            memcpy(keys + start, pieces[one], number * sizeof(int32_t));
            memcpy(probs + start, (int32_t *)pieces[one] + number, number * sizeof(float));
        }
        free(pieces[one]);
    }
    return 0;
}

/* The gradients, from the support. starts: where that of each query starts, of all that the forward pass counted,
 * and where the last one ends; for_scores, and with dropout weights, else null: as long as the support, written to. */
int entmax_attention_backward(const Shape *shape, Gradients *gradients, const int64_t *starts, const int32_t *keys,
                              const float *probs, float *for_scores, float *weights, int threads)
{
    int failed = 0;
    long heads = shape->sentences * shape->heads, blocks = up_to_lanes(shape->queries) / LANES, ranges = 1;
    double *for_alpha = malloc((heads * blocks + 1) * sizeof(double) + heads);
    if (!for_alpha) return 1;
    char *dense = (char *)(for_alpha + heads * blocks + 1);
    while (heads * ranges < 2 * threads && shape->keys > 64 * ranges) ranges *= 2;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Rows rows;
        failed = make_rows(&rows, shape, BACKWARD_ARRAYS);
#pragma omp for schedule(static)
        for (long head = 0; head < heads; head++) {
            const int64_t *of_head = starts + head * blocks * LANES;
            dense[head] = !failed && is_dense(shape, of_head) &&
                          differentiate_head(shape, head / shape->heads, head % shape->heads, gradients, of_head, keys,
                                             probs, for_alpha + head * blocks, &rows);
        }
#pragma omp for schedule(static)
        for (long one = 0; one < heads * blocks; one++) {
            long head = one / blocks;
            if (dense[head]) continue;
            int64_t start = starts[one * LANES];
            int32_t numbers[LANES];
            for (int k = 0; k < LANES; k++) numbers[k] = starts[one * LANES + k + 1] - starts[one * LANES + k];
            if (!failed)
                for_alpha[one] = differentiate_rows(shape, head / shape->heads, head % shape->heads,
                                                    one % blocks * LANES, gradients, numbers, keys + start,
                                                    probs + start, for_scores + start, weights ? weights + start : 0,
                                                    &rows);
        }
        free_rows(&rows);
#pragma omp for schedule(static)
        for (long one = 0; one < heads * ranges; one++) {
            long head = one / ranges, range = one % ranges;
            if (!failed && !dense[head])
                failed = gather_gradients(shape, head / shape->heads, head % shape->heads, shape->keys * range / ranges,
                                          shape->keys * (range + 1) / ranges, gradients,
                                          starts + head * blocks * LANES, keys, weights ? weights : probs, for_scores);
        }
    }
    for (long head = 0; head < heads && gradients->for_alpha; head++) {
        double sum = 0;
        for (long block = 0; block < blocks; block++) sum += for_alpha[head * blocks + block];
        gradients->for_alpha[head] = sum;
    }
    free(for_alpha);
    return failed;
}

/* A step of decoding: one query of each hypothesis. */
int entmax_attention_step(const Step *step, int threads)
{
    int failed = 0;
    long all_rows = step->hypotheses * step->heads;
    for (long one = 0; one < step->hypotheses && step->new_key; one++)
        step->origins[one * step->room + step->keys - 1] = one;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        StepWork work;
        failed = make_step_work(&work, step);
#pragma omp for schedule(static)
        for (long first = 0; first < all_rows; first += LANES)
            if (!failed) attend_step(step, first, smaller(all_rows - first, LANES), &work);
        free_rows(&work.rows);
        free(work.offsets);
    }
    return failed;
}

/* How many queries are side by side in the probabilities and in the mask */
int entmax_lanes(void) { return LANES; }
