/* Alpha-entmax, forward and backward, for fairseq_entmax.kernels.native.
 *
 * Rows in float32 are computed LANES at a time (block.h, rows_f32.h), rows in float64 one at a time
 * (rows_f64.h). In float32 there are also mappings with structure (structured.h, rows_structured.h; their
 * mathematics: prox.h, pnorm.h), the whole of attention with all of these (attention.h), and the loss of
 * alpha-entmax, one row at a time (losses.h).
 *
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
#include "prox.h"
#include "pnorm.h"
#include "structured.h"
#include "rows_f32.h"
#include "rows_structured.h"
#include "rows_f64.h"
#include "losses.h"
#include "attention.h"

/* --- what Python calls ------------------------------------------------------------------------
 *
 * Each function returns 0, or 1 where there is no memory.
 *
 * The mapping. scores, probs, grad: (rows, n); grad_alpha: (rows,). Row r has epsilon[(r / inner) mod
 * count]. A null grad_scores or grad_alpha is not wanted.
 */

int entmax_forward_f32(const float *scores, const float *epsilon, long inner, long count, float *probs, long rows,
                       long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, FORWARD_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES)
            if (!failed)
                forward_block(scores + row * n, load_epsilon(epsilon, row, inner, count), probs + row * n,
                              smaller(rows - row, LANES), n, &block);
        free(block.memory);
    }
    return failed;
}

int entmax_backward_f32(const float *probs, const float *epsilon, long inner, long count, const float *grad,
                        float *grad_scores, float *grad_alpha, long rows, long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, BACKWARD_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES)
            if (!failed)
                backward_block(probs + row * n, load_epsilon(epsilon, row, inner, count), grad + row * n,
                               grad_scores ? grad_scores + row * n : 0, grad_alpha ? grad_alpha + row : 0,
                               smaller(rows - row, LANES), n, &block);
        free(block.memory);
    }
    return failed;
}

int entmax_forward_f64(const double *scores, const double *epsilon, long inner, long count, double *probs, long rows,
                       long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        double *scaled = malloc(2 * n * sizeof(double));
        failed = !scaled;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row++)
            if (!failed) forward_row(scores + row * n, probs + row * n, n, epsilon[row / inner % count], scaled, scaled + n);
        free(scaled);
    }
    return failed;
}

int entmax_backward_f64(const double *probs, const double *epsilon, long inner, long count, const double *grad,
                        double *grad_scores, double *grad_alpha, long rows, long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        double *buffer = malloc(2 * n * sizeof(double));
        failed = !buffer;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row++)
            if (!failed)
                backward_row(probs + row * n, grad + row * n, n, epsilon[row / inner % count], grad_scores ? grad_scores + row * n : 0,
                             grad_alpha ? grad_alpha + row : 0, buffer, buffer + n);
        free(buffer);
    }
    return failed;
}

/* Mappings with structure, in float32, as above. kind: of structured.h; strength has its own inner and count.
 * masked: (rows, n), or null where no key is masked. */

typedef struct {
    const float *epsilon;
    long inner, count;
    const float *strength;
    long strength_inner, strength_count;
    int kind;
} OfRows;

static inline Structure load_structure(const OfRows *of, long row)
{
    return make_structure(of->kind, load_numbers(of->epsilon, row, of->inner, of->count),
                          load_numbers(of->strength, row, of->strength_inner, of->strength_count));
}

int entmax_structured_forward(const float *scores, const OfRows *of, float *probs, long rows, long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, STRUCTURED_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(of, row);
            structured_forward_block(scores + row * n, &structure, probs + row * n, smaller(rows - row, LANES), n,
                                     &block);
        }
        free(block.memory);
    }
    return failed;
}

int entmax_structured_backward(const float *probs, const OfRows *of, const uint8_t *masked, const float *grad,
                               float *grad_scores, float *grad_epsilon, float *grad_strength, long rows, long n,
                               int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, BACKWARD_ARRAYS);
        ivec *seen = aligned_alloc(sizeof(ivec), (n + 2) * sizeof(ivec));
        failed = !block.memory || !seen;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(of, row);
            structured_backward_block(probs + row * n, &structure, masked ? masked + row * n : 0, grad + row * n,
                                      grad_scores ? grad_scores + row * n : 0, grad_epsilon ? grad_epsilon + row : 0,
                                      grad_strength ? grad_strength + row : 0, smaller(rows - row, LANES), n, seen,
                                      &block);
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

/* Attention. Matrices are (data, sentence, head, row) with strides in numbers: query, key, value and
 * output; probs: (sentences, heads, blocks of LANES queries, keys, LANES), null if there is no backward pass. */
int entmax_attention_forward(const Shape *shape, Matrices *query, Matrices *key, Matrices *value, Matrices *output,
                             float *probs, int threads)
{
    int failed = 0;
    long size = (shape->queries + LANES - 1) / LANES * shape->keys * LANES;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Work work;
        failed = make_work(&work, shape, shape->kind == NO_STRUCTURE ? FORWARD_ARRAYS : STRUCTURED_ARRAYS);
#pragma omp for schedule(static)
        for (long one = 0; one < shape->sentences * shape->heads; one++)
            if (!failed)
                attend_forward(shape, one / shape->heads, one % shape->heads, query, key, value, output,
                               probs ? probs + one * size : 0, &work);
        free_work(&work);
    }
    return failed;
}

int entmax_attention_backward(const Shape *shape, Gradients *gradients, const float *probs, int threads)
{
    int failed = 0;
    long size = (shape->queries + LANES - 1) / LANES * shape->keys * LANES;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Work work;
        failed = make_work(&work, shape, BACKWARD_ARRAYS);
#pragma omp for schedule(static)
        for (long one = 0; one < shape->sentences * shape->heads; one++)
            if (!failed)
                attend_backward(shape, one / shape->heads, one % shape->heads, gradients, probs + one * size, &work);
        free_work(&work);
    }
    return failed;
}

/* How many queries are side by side in the probabilities and in the mask */
int entmax_lanes(void) { return LANES; }
