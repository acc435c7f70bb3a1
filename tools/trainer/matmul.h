// Matrix products of the trainer: strict f32, row-major, through oneDNN.
#pragma once
#include <cstddef>

namespace shardcomm::trainer {

// A matrix read from row-major memory: element (i, j) is data[i * stride + j], or data[j * stride + i] when transposed.
struct MatrixView {
  const float* data;
  size_t rows;
  size_t columns;
  size_t stride;
  bool transposed = false;

  MatrixView t() const { return {data, columns, rows, stride, !transposed}; }
};

// A row-major matrix that is written.
struct Matrix {
  float* data;
  size_t rows;
  size_t columns;
  size_t stride;

  operator MatrixView() const { return {data, rows, columns, stride}; }  // NOLINT: implicit on purpose
};

inline MatrixView view(const float* data, size_t rows, size_t columns) { return {data, rows, columns, columns}; }
inline Matrix matrix(float* data, size_t rows, size_t columns) { return {data, rows, columns, columns}; }

struct Scale {
  float product = 1;
  float previous = 0;  // with 0 the old contents of c are not read
};

// c = scale.product * a b + scale.previous * c. The same inputs give the same bits for the same number of threads.
// Empty matrices are fine. Shapes that do not fit end the program: they are a defect of the caller.
void multiply(MatrixView a, MatrixView b, Matrix c, Scale scale = {});

// Threads that a product of the calling thread may use from now on. oneDNN takes every core unless told otherwise,
// which is wrong as soon as several ranks share a machine.
void set_matmul_threads(int threads);

}  // namespace shardcomm::trainer
