/* The proximal operator of total variation, for a row in each lane: z that is least in
 * 1/2 |z - x|^2 + strength sum |z_i+1 - z_i|. In numbers of one kind: this file is read once for each.
 *
 * All lanes take the same steps (docs/structured.md). A segment's keys that end above its mean are told from the others
 * by the flux over each boundary, which the strength bounds: a pass forward finds the flux, one backward the sides. Where
 * two sides meet the segment is cut, and the flux is the strength for good. A segment on one side has its mean as z.
 *
 * V is a vector of such numbers, M of whole numbers as wide, NAME(f) what a function f is called.
 */

#define PICK(mask, a, b) ((V)(((mask) & (M)(a)) | (~(mask) & (M)(b))))

/* The flux into each key where a chain starts, NaN where none does; the mean of each chain, where it starts */
static inline void NAME(find_chains)(const V *restrict x, V *restrict enter, V *restrict means,
                                     long n)
{
    V none = (V){0}, total = none, count = none;
    M masked_next = (M)none - 1;
    enter[n] = none;
    for (long i = n - 1; i >= 0; i--) {
        M masked = x[i] == -INFINITY, ends = masked | masked_next;
        if (i + 1 < n) {
            enter[i + 1] = PICK(ends, none, none + (REAL)NAN);
            means[i + 1] = total / count;
        }
        total = x[i] + PICK(ends, none, total);
        count = (REAL)1 + PICK(ends, none, count);
        masked_next = masked;
    }
    enter[0] = none;
    means[0] = total / count;
}

/* The flux out of each key, within the bounds, but for that of the key itself */
static inline void NAME(flow)(const V *restrict x, const V *restrict enter, const V *restrict means,
                              V *restrict flux, V strength, long n)
{
    V f = enter[0], mean = means[0];
    for (long i = 0; i < n; i++) {
        V next = enter[i + 1], moved = f + (mean - x[i]);
        M ends = next == next;
        flux[i] = moved;
        /* Where a segment ends, both bounds are the flux there; NaN, of a masked key, is a bound then */
        f = GREATER(moved, PICK(ends, next, -strength));
        f = LESSER(f, PICK(ends, next, strength));
        mean = PICK(ends, means[i + 1], mean);
    }
}

/* Cuts each segment where two sides meet. Returns in which lanes one was. */
static inline M NAME(cut)(const V *restrict x, V *restrict enter, V *restrict means, const V *restrict flux,
                          V strength, long n)
{
    V none = (V){0}, total = none, count = none + (REAL)1;
    M cuts = (M)none, is_high_next = cuts;
    for (long i = n - 1; i >= 0; i--) {
        V next = enter[i + 1];
        M ends = next == next;
        M is_high = (flux[i] < PICK(ends, next, -strength))
                    | ((flux[i] < PICK(ends, next, strength)) & is_high_next);
        M meets = ~ends & (is_high ^ is_high_next), starts_next = ends | meets;
        next = PICK(meets, PICK(is_high, -strength, strength), next);
        enter[i + 1] = next;
        means[i + 1] = (total - next) / count;
        total = x[i] + PICK(starts_next, next, total);
        count = (REAL)1 + PICK(starts_next, none, count);
        is_high_next = is_high;
        cuts |= meets;
    }
    means[0] = total / count;
    return cuts;
}
#undef PICK
#undef V
#undef M
#undef REAL
#undef NAME
#undef LESSER
#undef GREATER
