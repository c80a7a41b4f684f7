/* Alpha-entmax in float32, forward and backward, for fairseq_entmax.kernels.native.
 *
 * Mappings, with or without structure, work on LANES rows at a time (block.h, sieve.h, rows_f32.h, structured.h; the
 * mathematics of structure is in prox.h and pnorm.h). Attention is computed as a whole (attention.h), with dropout of
 * its weights (dropout.h), or for one query per hypothesis (decoding.h). The loss takes one row at a time (losses.h).
 * Vectors are the extensions of GCC and Clang, which compile them to the instructions that the machine has.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* The functions that Python calls. Each returns 0, or 1 if memory cannot be allocated.
 *
 * Mappings of rows, with or without structure. scores, probs: (rows, n). */
int entmax_rows_forward(const float *scores, float *probs, const OfRows *of, long rows, long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, of->kind ? STRUCTURED_ARRAYS : FORWARD_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(of, row);
            forward_block(scores + row * n, &structure, probs + row * n, smaller(rows - row, LANES), n, &block);
        }
        free(block.memory);
    }
    return failed;
}

int entmax_rows_backward(const RowGradients *gradients, const OfRows *of, long rows, long n, int threads)
{
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n, BACKWARD_ARRAYS);
        int sees = of->kind == TV && gradients->for_strength;
        ivec *seen = sees ? aligned_alloc(sizeof(ivec), n * sizeof(ivec)) : 0;
        failed = !block.memory || (sees && !seen);
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row += LANES) {
            if (failed) continue;
            Structure structure = load_structure(of, row);
            backward_block(gradients, &structure, row, smaller(rows - row, LANES), n, seen, &block);
        }
        free(block.memory);
        free(seen);
    }
    return failed;
}

/* The loss of each row for its target. loss, support, grad: (rows,); grad_scores: (rows, n). */
int entmax_loss_forward(const Targets *targets, float *loss, int64_t *support, int threads)
{
    int failed = 0;
    long n = targets->n;
    const Loss of = loss_of(targets);
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Block block = make_block(n / LANES + PARTS + 2, LOSS_ARRAYS);
        failed = !block.memory;
#pragma omp for schedule(static)
        for (long row = 0; row < targets->rows; row++)
            if (!failed)
                loss[row] = loss_row(targets->scores + row * n, n, targets->target[row], &of, &block, support + row,
                                     targets->target_prob + row, targets->of_rows + row);
        free(block.memory);
    }
    return failed;
}

int entmax_loss_backward(const Targets *targets, const float *grad, float *grad_scores, int threads)
{
    long n = targets->n;
    const Loss of = loss_of(targets);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long row = 0; row < targets->rows; row++)
        loss_gradient_row(targets->scores + row * n, n, targets->target[row], targets->target_prob[row], &of,
                          targets->of_rows + row, grad[row], grad_scores + row * n);
    return 0;
}

/* Asks for huge pages, which some systems grant only on request. With small pages, page faults take half the time of
 * writing a large array once. */
static void ask_for_huge_pages(void *memory, long bytes)
{
#ifdef MADV_HUGEPAGE
    long page = 1L << 21, before = -(uintptr_t)memory & (page - 1);
    if (bytes >= before + page) madvise((char *)memory + before, (bytes - before) & -page, MADV_HUGEPAGE);
#endif
}

/* Attention, in blocks of LANES queries, head after head. The arrays of the support are null if no backward pass
 * follows. Its keys and probabilities are adjacent, with room for all: pages that are not written to use no memory. */
int entmax_attention_forward(const Shape *shape, const Attention *of, const Support *support, int threads)
{
    int failed = 0;
    int32_t *keys = support->keys;
    long blocks = up_to_lanes(shape->queries) / LANES, all_blocks = shape->sentences * shape->heads * blocks;
    int64_t *starts = support->starts, *places = keys ? malloc((all_blocks + 1) * sizeof(int64_t)) : 0, end = 0;
    if (keys && !places) return 1;
    if (keys) ask_for_huge_pages(keys, all_blocks * LANES * shape->keys * (sizeof(int32_t) + sizeof(float)));
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Rows rows;
        int64_t place = -1;
        failed = make_rows(&rows, shape, FORWARD_ARRAYS);
#pragma omp for schedule(static)
        for (long one = 0; one < all_blocks; one++) {
            long found = failed ? 0 : attend_rows(shape, head_at(shape, one / blocks), one % blocks * LANES, of, &rows);
            if (!keys) continue;
            /* A thread writes one piece, which starts as if all earlier queries had every key in their support */
            if (place < 0) place = (int64_t)one * LANES * shape->keys;
            memcpy(keys + place, rows.keys, found * sizeof(int32_t));
            memcpy(support->probs + place, rows.probs, found * sizeof(float));
            places[one] = place, place += found;
            for (int k = 0; k < LANES; k++) starts[one * LANES + k + 1] = rows.numbers[k];
        }
        free_rows(&rows);
    }
    for (long query = 0; query < all_blocks * LANES && keys; query++) starts[query + 1] += starts[query];
    for (long one = 0; one < all_blocks && keys; one++) {
        int64_t number = starts[(one + 1) * LANES] - starts[one * LANES];
        if (places[one] != end) {
            memmove(keys + end, keys + places[one], number * sizeof(int32_t));
            memmove(support->probs + end, support->probs + places[one], number * sizeof(float));
        }
        end += number;
    }
    free(places);
    return failed;
}

/* The gradients of attention, from the support that the forward pass found */
int entmax_attention_backward(const Shape *shape, const Gradients *gradients, const Support *support, int threads)
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
            Head of = head_at(shape, head);
            dense[head] = !failed && is_dense(shape, starts_of(support, shape, of)) &&
                          differentiate_head(shape, of, gradients, support, for_alpha + head * blocks, &rows);
        }
#pragma omp for schedule(static)
        for (long one = 0; one < heads * blocks; one++) {
            long head = one / blocks;
            if (!failed && !dense[head])
                for_alpha[one] = differentiate_rows(shape, head_at(shape, head), one % blocks * LANES, gradients,
                                                    support, &rows);
        }
        free_rows(&rows);
#pragma omp for schedule(static)
        for (long one = 0; one < heads * ranges; one++) {
            long head = one / ranges, range = one % ranges;
            if (!failed && !dense[head])
                failed = gather_gradients(shape, head_at(shape, head), shape->keys * range / ranges,
                                          shape->keys * (range + 1) / ranges, gradients, support);
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

/* A step of decoding: attention of one query per hypothesis. */
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

/* How many rows, or queries of attention, are computed side by side */
int entmax_lanes(void) { return LANES; }
