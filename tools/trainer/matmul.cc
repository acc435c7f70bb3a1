// dnnl_sgemm rather than the matmul primitive: both end in the same kernels here, sgemm takes strides at each call (so
// an attention head is read in place) and needs no primitive per shape.
#include "tools/trainer/matmul.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>

namespace shardcomm::trainer {
namespace {

[[noreturn]] void fail(const char* why, MatrixView a, MatrixView b, Matrix c) {
  std::fprintf(stderr, "matrix product [%zu,%zu] x [%zu,%zu] -> [%zu,%zu]: %s\n", a.rows, a.columns, b.rows, b.columns,
               c.rows, c.columns, why);
  std::abort();
}

void scale_rows(Matrix c, float factor) {
  for (size_t row = 0; row < c.rows; ++row) {
    float* at = c.data + row * c.stride;
    for (size_t column = 0; column < c.columns; ++column) at[column] = factor == 0 ? 0 : factor * at[column];
  }
}

}  // namespace

void multiply(MatrixView a, MatrixView b, Matrix c, Scale scale) {
  if (a.columns != b.rows || a.rows != c.rows || b.columns != c.columns) fail("the shapes do not fit", a, b, c);
  if (c.rows == 0 || c.columns == 0) return;
  if (a.columns == 0) return scale_rows(c, scale.previous);  // an empty sum, which oneDNN refuses
  const auto dim = [](size_t n) { return static_cast<dnnl_dim_t>(n); };
  const auto op = [](MatrixView m) { return m.transposed ? 'T' : 'N'; };
  const dnnl::status status =
      dnnl::sgemm(op(a), op(b), dim(c.rows), dim(c.columns), dim(a.columns), scale.product, a.data, dim(a.stride),
                  b.data, dim(b.stride), scale.previous, c.data, dim(c.stride));
  if (status != dnnl::status::success) fail("oneDNN refused", a, b, c);
}

void set_matmul_threads(int threads) {
  // The OpenMP runtime that oneDNN brought into the process, whichever it is; without one oneDNN is sequential. Looked
  // up so that this program need not be compiled for the same runtime.
  using SetThreads = void (*)(int);
  static const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
}

}  // namespace shardcomm::trainer
