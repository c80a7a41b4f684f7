/* Rows in memory mapped with structure, LANES at a time. Those of TV stay whole, for their neighbours. */

/* Distances of all keys from the largest score. Returns which rows have NaN or infinity: nothing of these is
 * kept. */
static inline ivec load_whole(const float *scores, int count, long n, Block *block)
{
    vec *restrict distances = block->array[DISTANCES], top = all(-INFINITY);
    ivec broken = {0};
    block->is_whole = 1;
    block->length = n;
    transpose(scores, count, n, -INFINITY, distances);
    for (long i = 0; i < n; i++) {
        top = WHERE(distances[i] > top, distances[i], top);
        broken |= distances[i] != distances[i];
    }
    broken |= top == INFINITY;
    vec origin = WHERE(top == -INFINITY, all(0.0f), top);
    for (long i = 0; i < n; i++) distances[i] = WHERE(broken, all(-INFINITY), distances[i] - origin);
    return broken;
}

static void structured_forward_block(const float *scores, const Structure *structure, float *probs, int count,
                                     long n, Block *block)
{
    ivec broken;
    if (structure->kind == TV) {
        broken = load_whole(scores, count, n, block);
        prox_tv(block, structure->strength, 0);
    } else {
        broken = keep_scores(scores, count, n, epsilon_to_keep(structure, n), block);
        if (structure->kind == OSCAR) prox_oscar(block, structure->epsilon, structure->strength);
    }
    int32_t counts[LANES];
    memcpy(counts, block->counts, sizeof counts);
    if (structure->kind == PNORM) {
        solve_pnorm(block, structure->epsilon, structure->strength);
    } else {
        recentre(block, structure->epsilon);
        solve_with_ties(block, structure->epsilon, structure->strength > 0.0f);
    }
    broken |= structure->without & has_keys(block);
    if (structure->kind != TV) memcpy(block->counts, counts, sizeof counts); /* those that were kept */
    put_back(block, block->array[POWERS], probs, count, n);
    fill_rows(broken, probs, count, n);
}

/* Which keys the rows have, from 1 on, with nothing before them and behind */
static inline void load_seen(const uint8_t *masked, int count, long n, ivec *seen)
{
    Places cells = (Places)(seen + 1);
    memset(seen, 0, (n + 2) * sizeof *seen);
    for (int k = 0; k < count; k++)
        for (long i = 0; i < n; i++) cells[i][k] = masked && masked[k * n + i] ? 0 : -1;
}

/* The gradients of `count` rows. masked may be null where no key is; so may what is not wanted. */
static void structured_backward_block(const float *probs, const Structure *structure, const uint8_t *masked,
                                      const float *grads, float *grad_scores, float *grad_epsilon,
                                      float *grad_strength, int count, long n, ivec *seen, Block *block)
{
    vec broken = {0};
    if (structure->kind == TV) {
        block->is_whole = 1;
        block->length = n;
        transpose(probs, count, n, 0.0f, block->array[PROBS]);
        transpose(grads, count, n, 0.0f, block->array[GRADS]);
        if (grad_strength) load_seen(masked, count, n, seen);
    } else {
        keep_support(probs, count, n, block);
        broken = follow(block, grads, count, n, block->array[GRADS]);
    }
    const ivec *there = structure->kind == TV && grad_strength ? seen : 0;
    OfParameters of = differentiate_structure(block, structure, there, 0, grad_epsilon != 0);
    if (grad_scores) {
        put_back(block, block->array[SENSITIVITIES], grad_scores, count, n);
        fill_rows(broken != broken, grad_scores, count, n);
    }
    of.for_epsilon += broken;
    of.for_strength += broken;
    for (int k = 0; grad_epsilon && k < count; k++) grad_epsilon[k] = of.for_epsilon[k];
    for (int k = 0; grad_strength && k < count; k++) grad_strength[k] = of.for_strength[k];
}
