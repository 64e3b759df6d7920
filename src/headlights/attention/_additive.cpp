// Sums of tanh without a tanh: sum over a of v[a] tanh(q[n,a] + k[m,a]), from Q = exp(2q) and K = exp(2k).
//
// With r = 1 / d, d = 1 + Q K, tanh = 1 - 2r and its derivative is 4 r (1 - r). A division takes as long as all the
// rest, so two terms share one: v / d + w / e = (v e + w d) / (d e), 1 / d = e (1 / (d e)).
// All arrays are dense: Q (B, N, A), K (B, M, A), v (A,), scores and their gradient g (B, N, M). A plain C
// interface, which _compiled.py calls; nothing here knows of torch.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using Size = int64_t;

// Channels whose gradients stay in the cache while the queries of an example pass.
constexpr Size CHANNELS = 256;

// A pragma alone: without OpenMP one thread does all the work.
template <typename Work> void in_parallel(Size rows, Size threads, Work work) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Size i = 0; i < threads; ++i) work(rows * i / threads, rows * (i + 1) / threads);
}

// 1 + Q K, at most 1 / eps^2: tanh is 1 long before, and the product of two stays finite where Q K may be infinite.
// Positive numbers are ordered as their bits are, and the smaller integer is one instruction; for floats, compilers
// take two to let NaN pass. Here NaN becomes the limit too.
template <typename T> inline T denominator(T q, T k) {
    using Bits = std::conditional_t<sizeof(T) == sizeof(int32_t), int32_t, int64_t>;
    constexpr T eps = std::numeric_limits<T>::epsilon(), limit = 1 / (eps * eps);
    T d = 1 + q * k;
    Bits bits, most;
    std::memcpy(&bits, &d, sizeof d);
    std::memcpy(&most, &limit, sizeof d);
    bits = bits < most ? bits : most;
    std::memcpy(&d, &bits, sizeof d);
    return d;
}

// The scores of one query with some keys, which share what is loaded. Blocks of a fixed number of channels become
// vectors, and their sums stay in registers.
template <int keys, typename T> void some_scores(const T* q, const T* k, const T* v, T* scores, Size A) {
    constexpr Size lanes = 64 / sizeof(T);
    T sums[keys][lanes] = {};
    Size done = 0;
    for (; done + 2 * lanes <= A; done += 2 * lanes) {
#pragma GCC unroll 4
        for (int j = 0; j < keys; ++j) {
#pragma omp simd
            for (Size a = done; a < done + lanes; ++a) {
                const Size b = a + lanes;
                const T d = denominator(q[a], k[j * A + a]), e = denominator(q[b], k[j * A + b]);
                sums[j][a - done] += (v[a] + v[b]) - ((v[a] + v[a]) * e + (v[b] + v[b]) * d) / (d * e);
            }
        }
    }
    for (; done < A; ++done)
        for (int j = 0; j < keys; ++j)
            sums[j][0] += v[done] * (1 - 2 / denominator(q[done], k[j * A + done]));
    for (int j = 0; j < keys; ++j) {
        T sum = 0;
        for (Size i = 0; i < lanes; ++i) sum += sums[j][i];
        scores[j] = sum;
    }
}

template <typename T>
void forward(const T* Q, const T* K, const T* v, T* scores, Size B, Size N, Size M, Size A, Size threads) {
    in_parallel(B * N, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T *q = Q + row * A, *k = K + row / N * M * A;
            T* out = scores + row * M;
            Size m = 0;
            for (; m + 4 <= M; m += 4) some_scores<4>(q, k + m * A, v, out + m, A);
            for (; m < M; ++m) some_scores<1>(q, k + m * A, v, out + m, A);
            T total = 0;
#pragma omp simd reduction(+ : total)
            for (Size a = 0; a < A; ++a) total += q[a];
            if (total != total) std::fill_n(out, M, total);  // NaN, which `denominator` does not pass on
        }
    });
}

// What one query x and two keys y, whose scores have the gradients g, add: to dx sum_j g_j r (1 - r), to each dy its
// own term, to `sums` sum_j g_j (1/2 - r).
template <typename T>
void add_gradients(const T* __restrict x, const T* y1, const T* y2, T g1, T g2, T* __restrict dx,
                   T* __restrict dy1, T* __restrict dy2, T* __restrict sums, Size count) {
    const T middle = (g1 + g2) / 2;
#pragma omp simd
    for (Size a = 0; a < count; ++a) {
        const T d1 = denominator(x[a], y1[a]), d2 = denominator(x[a], y2[a]);
        const T both = 1 / (d1 * d2), r1 = both * d2, r2 = both * d1;
        const T w1 = g1 * r1, w2 = g2 * r2;
        const T slope1 = w1 - w1 * r1, slope2 = w2 - w2 * r2;
        dx[a] += slope1 + slope2;
        dy1[a] += slope1;
        dy2[a] += slope2;
        sums[a] += middle - (w1 + w2);
    }
}

// The gradients of `count` channels of an example, from `start` on: of queries and keys, and of v in `totals`.
template <typename T>
void example_gradients(const T* Q, const T* K, const T* v, const T* g, T* dq, T* dk, double* totals, Size N, Size M,
                       Size A, Size start, Size count) {
    T sums[CHANNELS], unused[CHANNELS] = {};
    const T* k = K + start;
    for (Size m = 0; m < M; ++m) std::fill_n(dk + m * A + start, count, T{0});
    for (Size n = 0; n < N; ++n, g += M) {
        const T* q = Q + n * A + start;
        T *dx = dq + n * A + start, *dy = dk + start;
        std::fill_n(dx, count, T{0});
        std::fill_n(sums, count, T{0});
        for (Size m = 0; m < M; m += 2) {
            const T *y1 = k + m * A, *y2 = y1 + A;
            T* dy1 = dy + m * A;
            if (m + 1 < M)
                add_gradients(q, y1, y2, g[m], g[m + 1], dx, dy1, dy1 + A, sums, count);
            else  // the last of an odd number, with itself
                add_gradients(q, y1, y1, g[m], T{0}, dx, dy1, unused, sums, count);
        }
        for (Size a = 0; a < count; ++a) dx[a] *= 4 * v[start + a];
        for (Size a = 0; a < count; ++a) totals[start + a] += 2 * sums[a];
    }
    for (Size m = 0; m < M; ++m)
        for (Size a = start; a < start + count; ++a) dk[m * A + a] *= 4 * v[a];
}

template <typename T>
void backward(const T* Q, const T* K, const T* v, const T* g, T* dq, T* dk, T* dv, Size B, Size N, Size M, Size A,
              Size threads) {
    const Size chunks = (A + CHANNELS - 1) / CHANNELS;
    std::vector<double> totals(B * A, 0.0);  // over many rows, where floats would lose digits
    double* all = totals.data();
    in_parallel(B * chunks, threads, [=](Size first, Size last) {
        for (Size i = first; i < last; ++i) {
            const Size b = i / chunks, start = i % chunks * CHANNELS, count = std::min(CHANNELS, A - start);
            example_gradients(Q + b * N * A, K + b * M * A, v, g + b * N * M, dq + b * N * A, dk + b * M * A,
                              all + b * A, N, M, A, start, count);
        }
    });
    for (Size a = 0; a < A; ++a) {
        double sum = 0;
        for (Size b = 0; b < B; ++b) sum += totals[b * A + a];
        dv[a] = static_cast<T>(sum);
    }
}

}  // namespace

extern "C" {

#define DEFINE_FOR(T)                                                                                              \
    void forward_##T(const T* Q, const T* K, const T* v, T* scores, Size B, Size N, Size M, Size A, Size threads) { \
        forward(Q, K, v, scores, B, N, M, A, threads);                                                              \
    }                                                                                                               \
    void backward_##T(const T* Q, const T* K, const T* v, const T* g, T* dq, T* dk, T* dv, Size B, Size N, Size M,  \
                      Size A, Size threads) {                                                                       \
        backward(Q, K, v, g, dq, dk, dv, B, N, M, A, threads);                                                      \
    }

DEFINE_FOR(float)
DEFINE_FOR(double)
}
