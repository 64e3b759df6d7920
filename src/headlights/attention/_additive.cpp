// Sums of tanh without a tanh: sum over a of v[a] tanh(q[n,a] + k[m,a]), from Q = exp(2q) and K = exp(2k).
//
// With r = 1 / (1 + Q K), tanh = 1 - 2r and its derivative is 4 r (1 - r); Q K may overflow to infinity, then r is 0.
// All arrays are dense: Q (B, N, A), K (B, M, A), v (A,), scores and their gradient g (B, N, M). A plain C
// interface, which _compiled.py calls; nothing here knows of torch.

#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using Size = int64_t;

template <typename Work> void in_parallel(Size rows, Size threads, Work work) {
    std::vector<std::thread> others;
    for (Size i = 1; i < threads; ++i) {
        const Size first = rows * i / threads, last = rows * (i + 1) / threads;
        try {
            others.emplace_back(work, i, first, last);
        } catch (const std::system_error&) {  // the system gives no more threads
            work(i, first, last);
        }
    }
    work(Size{0}, Size{0}, rows / threads);
    for (auto& other : others) other.join();
}

template <typename T>
void forward(const T* Q, const T* K, const T* v, T* scores, Size B, Size N, Size M, Size A, Size threads) {
    in_parallel(B * N, threads, [=](Size, Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* q = Q + row * A;
            for (Size m = 0; m < M; ++m) {
                const T* k = K + (row / N * M + m) * A;
                T sum = 0;
#pragma omp simd reduction(+ : sum)
                for (Size a = 0; a < A; ++a) sum += v[a] * (1 - 2 / (1 + q[a] * k[a]));
                scores[row * M + m] = sum;
            }
        }
    });
}

// The gradient of one row x against `count` rows of y: dx[a] = 4 v[a] sum_j g_j r (1 - r), the g_j standing `step`
// apart. If asked for, also the sums of g_j (1 - 2r), which make the gradient of v.
template <bool with_sums, typename T>
void gradient(const T* __restrict x, const T* y, const T* g, Size step, const T* __restrict v, T* __restrict dx,
              T* __restrict sums, Size count, Size A) {
    for (Size a = 0; a < A; ++a) dx[a] = 0;
    for (Size a = 0; a < A && with_sums; ++a) sums[a] = 0;
    for (Size j = 0; j < count; ++j, y += A, g += step) {
        const T gj = *g;
#pragma omp simd
        for (Size a = 0; a < A; ++a) {
            const T r = 1 / (1 + x[a] * y[a]);
            dx[a] += gj * (r - r * r);
            if (with_sums) sums[a] += gj * (1 - 2 * r);
        }
    }
    for (Size a = 0; a < A; ++a) dx[a] *= 4 * v[a];
}

template <typename T>
void backward_query(const T* Q, const T* K, const T* v, const T* g, T* dq, T* dv, Size B, Size N, Size M, Size A,
                    Size threads) {
    std::vector<double> totals(threads * A, 0.0);  // over many rows, where floats would lose digits
    double* all = totals.data();
    in_parallel(B * N, threads, [=](Size thread, Size first, Size last) {
        std::vector<T> sums(A);
        double* total = all + thread * A;
        for (Size row = first; row < last; ++row) {
            const T* keys = K + row / N * M * A;
            gradient<true>(Q + row * A, keys, g + row * M, 1, v, dq + row * A, sums.data(), M, A);
            for (Size a = 0; a < A; ++a) total[a] += sums[a];
        }
    });
    for (Size a = 0; a < A; ++a) {
        double sum = 0;
        for (Size i = 0; i < threads; ++i) sum += totals[i * A + a];
        dv[a] = static_cast<T>(sum);
    }
}

template <typename T>
void backward_key(const T* Q, const T* K, const T* v, const T* g, T* dk, Size B, Size N, Size M, Size A,
                  Size threads) {
    in_parallel(B * M, threads, [=](Size, Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const Size b = row / M, m = row % M;
            T* none = nullptr;
            gradient<false>(K + row * A, Q + b * N * A, g + b * N * M + m, M, v, dk + row * A, none, N, A);
        }
    });
}

}  // namespace

extern "C" {

#define DEFINE_FOR(T)                                                                                              \
    void forward_##T(const T* Q, const T* K, const T* v, T* scores, Size B, Size N, Size M, Size A, Size threads) { \
        forward(Q, K, v, scores, B, N, M, A, threads);                                                              \
    }                                                                                                               \
    void backward_query_##T(const T* Q, const T* K, const T* v, const T* g, T* dq, T* dv, Size B, Size N, Size M,   \
                            Size A, Size threads) {                                                                 \
        backward_query(Q, K, v, g, dq, dv, B, N, M, A, threads);                                                    \
    }                                                                                                               \
    void backward_key_##T(const T* Q, const T* K, const T* v, const T* g, T* dk, Size B, Size N, Size M, Size A,    \
                          Size threads) {                                                                           \
        backward_key(Q, K, v, g, dk, B, N, M, A, threads);                                                          \
    }

DEFINE_FOR(float)
DEFINE_FOR(double)
}
