// Which instantiation of the host reduction serves a (dtype, op) pair.
#pragma once
#include "kernels/reduce_host.h"

namespace shardcomm::kernels {

template <class Block>
HostReduceFunction find_float(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return Reduction<Block, Sum>::reduce;
    case ReduceOp::kAverage: return Reduction<Block, Average>::reduce;
    case ReduceOp::kMax: return Reduction<Block, Max>::reduce;
    case ReduceOp::kMin: return Reduction<Block, Min>::reduce;
    case ReduceOp::kProduct: return Reduction<Block, Product>::reduce;
    default: return nullptr;
  }
}

template <class Block>
HostReduceFunction find_complex(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return Reduction<ComplexBlock<Block>, Sum>::reduce;
    case ReduceOp::kAverage: return Reduction<ComplexBlock<Block>, Average>::reduce;
    default: return nullptr;
  }
}

// On 0 and 1.
template <class Isa>
HostReduceFunction find_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr: return Reduction<BoolBlock<Isa>, BitOr>::reduce;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd: return Reduction<BoolBlock<Isa>, BitAnd>::reduce;
    case ReduceOp::kBitXor: return Reduction<BoolBlock<Isa>, BitXor>::reduce;
    case ReduceOp::kAverage: return nullptr;
  }
  return nullptr;
}

// Sums and products wrap, and, like bits, have the same bits signed and unsigned: they share the unsigned code.
template <class Isa, class T>
HostReduceFunction find_integer(ReduceOp op) {
  using Wrapping = NativeBlock<Isa, std::make_unsigned_t<T>>;
  using Ordered = NativeBlock<Isa, T>;
  switch (op) {
    case ReduceOp::kSum: return Reduction<Wrapping, Sum>::reduce;
    case ReduceOp::kProduct: return Reduction<Wrapping, Product>::reduce;
    case ReduceOp::kMax: return Reduction<Ordered, Max>::reduce;
    case ReduceOp::kMin: return Reduction<Ordered, Min>::reduce;
    case ReduceOp::kBitAnd: return Reduction<Wrapping, BitAnd>::reduce;
    case ReduceOp::kBitOr: return Reduction<Wrapping, BitOr>::reduce;
    case ReduceOp::kBitXor: return Reduction<Wrapping, BitXor>::reduce;
    case ReduceOp::kAverage: return nullptr;
  }
  return nullptr;
}

template <class Isa>
HostReduceFunction find_reduce(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kU8: return find_integer<Isa, uint8_t>(op);
    case DType::kI8: return find_integer<Isa, int8_t>(op);
    case DType::kI32: return find_integer<Isa, int32_t>(op);
    case DType::kU32: return find_integer<Isa, uint32_t>(op);
    case DType::kI64: return find_integer<Isa, int64_t>(op);
    case DType::kU64: return find_integer<Isa, uint64_t>(op);
    case DType::kF32: return find_float<NativeBlock<Isa, float>>(op);
    case DType::kF64: return find_float<NativeBlock<Isa, double>>(op);
    case DType::kF16: return find_float<typename Isa::F16Block>(op);
    case DType::kBF16: return find_float<BF16Block<Isa>>(op);
    case DType::kF8E4M3: return find_float<PackedBlock<Isa, F8E4M3>>(op);
    case DType::kF8E5M2: return find_float<PackedBlock<Isa, F8E5M2>>(op);
    case DType::kI16: return find_integer<Isa, int16_t>(op);
    case DType::kU16: return find_integer<Isa, uint16_t>(op);
    case DType::kBool: return find_bool<Isa>(op);
    case DType::kComplex64: return find_complex<NativeBlock<Isa, float>>(op);
    case DType::kComplex128: return find_complex<NativeBlock<Isa, double>>(op);
  }
  return nullptr;
}

}  // namespace shardcomm::kernels
