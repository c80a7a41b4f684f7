/* Vectors of as many floats as the processor handles at a time, and their logarithm and exponential. */

#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifdef LANES
#elif defined(__AVX512F__) && defined(__AVX512DQ__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
/* A vector of floats that Python passes, which need not be aligned to a vector */
typedef float given_vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float (*Lanes)[LANES];
typedef int32_t (*Places)[LANES];

#define WHERE(mask, a, b) ((vec)(((mask) & (ivec)(a)) | (~(mask) & (ivec)(b))))
#define ZERO_UNLESS(mask, a) ((vec)((mask) & (ivec)(a)))

static inline vec all(float x) { return x - (vec){0}; }

/* Instructions that compilers never choose, or not always. lesser and greater return b if a or b is NaN; about_inverse
 * is 1 / x with a relative error of up to 4e-4; bits_of sets a bit for each lane in which the mask is set. */
#if LANES == 16 && defined(__AVX512F__) && defined(__AVX512DQ__)
#define HAS_COMPRESSION
#define X86(name) _mm512_##name
#define X86_INVERSE _mm512_rcp14_ps
typedef __m512 x86_vec;
typedef __m512i x86_ivec;
static inline unsigned bits_of(ivec mask) { return _mm512_movepi32_mask((__m512i)mask); }
#elif LANES == 8 && defined(__AVX2__)
#define X86(name) _mm256_##name
#define X86_INVERSE _mm256_rcp_ps
typedef __m256 x86_vec;
typedef __m256i x86_ivec;
static inline unsigned bits_of(ivec mask) { return _mm256_movemask_ps((__m256)mask); }
/* For each 8-bit mask: the lanes whose bit is set, and how many of these precede each lane; one byte per lane */
#define HAS_PERMUTATION
static uint64_t lanes_of[256], ranks_of[256];
static __attribute__((constructor)) void fill_tables(void)
{
    for (int bits = 0; bits < 256; bits++)
        for (int k = 0, rank = 0; k < LANES; k++) {
            ranks_of[bits] |= (uint64_t)rank << 8 * k;
            if (bits >> k & 1) lanes_of[bits] |= (uint64_t)k << 8 * rank++;
        }
}
static inline vec permuted(vec numbers, uint64_t from)
{
    return (vec)_mm256_permutevar8x32_ps((__m256)numbers, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)from)));
}
#elif LANES == 4 && defined(__SSE2__)
#define X86(name) _mm_##name
#define X86_INVERSE _mm_rcp_ps
typedef __m128 x86_vec;
typedef __m128i x86_ivec;
static inline unsigned bits_of(ivec mask) { return _mm_movemask_ps((__m128)mask); }
#endif

#ifdef X86
static inline vec lesser(vec a, vec b) { return (vec)X86(min_ps)((x86_vec)a, (x86_vec)b); }
static inline vec greater(vec a, vec b) { return (vec)X86(max_ps)((x86_vec)a, (x86_vec)b); }
static inline vec root_of(vec x) { return (vec)X86(sqrt_ps)((x86_vec)x); }
static inline vec about_inverse(vec x) { return (vec)X86_INVERSE((x86_vec)x); }
#else
static inline vec lesser(vec a, vec b) { return WHERE(a < b, a, b); }
static inline vec greater(vec a, vec b) { return WHERE(a > b, a, b); }
static inline vec about_inverse(vec x) { return 1.0f / x; }
static inline vec root_of(vec x)
{
    for (int k = 0; k < LANES; k++) x[k] = sqrtf(x[k]);
    return x;
}
static inline unsigned bits_of(ivec mask)
{
    unsigned bits = 0;
    for (int k = 0; k < LANES; k++) bits |= (unsigned)(mask[k] != 0) << k;
    return bits;
}
#endif

static inline int any(ivec mask) { return bits_of(mask) != 0; }

/* bits_above sets a bit for each lane in which a > b, bits_unlike for each in which a != b, as always with NaN */
#ifdef HAS_COMPRESSION
static inline unsigned bits_above(vec a, vec b) { return X86(cmp_ps_mask)((x86_vec)a, (x86_vec)b, _CMP_GT_OQ); }
static inline unsigned bits_unlike(vec a, vec b) { return X86(cmp_ps_mask)((x86_vec)a, (x86_vec)b, _CMP_NEQ_UQ); }
#else
static inline unsigned bits_above(vec a, vec b) { return bits_of(a > b); }
static inline unsigned bits_unlike(vec a, vec b) { return bits_of(a != b); }
#endif

/* Half of the lanes of each of two vectors in one. UPPER takes the lanes whose index has the bit `half` clear, LOWER
 * those that have it set. The indices are written out, as compilers do not turn a loop into constants. */
#define UPPER(k, half) ((k) & (half) ? LANES + (k) - (half) : (k))
#define LOWER(k, half) ((k) & (half) ? LANES + (k) : (k) + (half))
#define FOUR(which, k, half) which(k, half), which(k + 1, half), which(k + 2, half), which(k + 3, half)
#define EIGHT(which, k, half) FOUR(which, k, half), FOUR(which, k + 4, half)
#if LANES == 16
#define PLACES(which, half) EIGHT(which, 0, half), EIGHT(which, 8, half)
#elif LANES == 8
#define PLACES(which, half) EIGHT(which, 0, half)
#else
#define PLACES(which, half) FOUR(which, 0, half)
#endif
#ifdef __clang__
#define SHUFFLE(a, b, which, half) __builtin_shufflevector(a, b, PLACES(which, half))
#else
#define SHUFFLE(a, b, which, half) __builtin_shuffle(a, b, (ivec){PLACES(which, half)})
#endif

/* --- logarithm and exponential to the base 2 -------------------------------------------------
 *
 * The polynomials minimise the largest relative error, in float64, on their intervals, by Lawson's
 * weighted least squares: 2.6e-8 for log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1], 1.9e-9 for
 * 2^r on [-1/2, 1/2].
 */

#define SQRT_HALF_BITS 0x3f3504f3
#define MANTISSA_BITS 0x007fffff
#define ROUNDING 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */
#define ROUNDING_BITS 0x4b400000
#define LEAST_EXPONENT -126.0f /* below, 2^x leaves the normal numbers */
#define LN_2 0.69314718056f
#define LOG2_E 1.44269504089f

/* log2(u) of normal numbers u > 0, given x = u - 1, which may have digits that u has lost */
static inline vec log2_of(vec u, vec x)
{
    ivec bits = (ivec)u - SQRT_HALF_BITS, exponent = bits >> 23;
    vec mantissa = (vec)((bits & MANTISSA_BITS) + SQRT_HALF_BITS);
    vec f = WHERE(exponent == 0, x, mantissa - 1.0f);
    vec y = f * 0.1258370578289032f - 0.2072698175907135f;
    y = y * f + 0.21571561694145203f;
    y = y * f - 0.23894481360912323f;
    y = y * f + 0.28791624307632446f;
    y = y * f - 0.3607036769390106f;
    y = y * f + 0.48091062903404236f;
    y = y * f - 0.7213473320007324f;
    y = y * f + 1.4426950216293335f;
    return y * f + __builtin_convertvector(exponent, vec);
}

/* 2^x for x < 128; 0 for x <= LEAST_EXPONENT */
static inline vec exp2_of(vec x)
{
    ivec normal = x > LEAST_EXPONENT;
    vec shifted = x + ROUNDING;
    vec r = x - (shifted - ROUNDING);
    vec y = r * 0.0001534581242594868f + 0.0013399930903688073f;
    y = y * r + 0.009618489071726799f;
    y = y * r + 0.05550328642129898f;
    y = y * r + 0.24022646248340607f;
    y = y * r + 0.6931471824645996f;
    y = y * r + 1.0f;
    return ZERO_UNLESS(normal, (ivec)y + (((ivec)shifted - ROUNDING_BITS) << 23));
}

/* 1 - exp(-x) for x > -1/4 */
static inline vec one_minus_exp(vec x)
{
    vec near = x * (1.0f - x * (0.5f - x * (0.16666667f - x * (0.041666668f - x * 0.008333334f))));
    return WHERE(x < 0.25f, near, 1.0f - exp2_of(x * -LOG2_E));
}

static inline long smaller(long a, long b) { return a < b ? a : b; }
static inline long up_to_lanes(long n) { return (n + LANES - 1) / LANES * LANES; }

static inline ivec lanes_below(long number)
{
    ivec lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    return lane < (int32_t)smaller(number, LANES);
}

static inline double across(vec numbers)
{
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += numbers[k];
    return sum;
}
