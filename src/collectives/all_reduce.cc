// all_reduce. Small: every rank shows all its data and every rank combines all of it. Large: a reduce-scatter into each
// rank's share of `out`, then a gather of the shares (Rabenseifner 2004), so the bits equal those of reduce_scatter.
// Steps: inline 1 signal, n − 1 times the data read; direct 3 signals, 2(n − 1)/n of the data.
#include "collectives/engine.h"

namespace shardcomm {
namespace {

constexpr size_t kShareAlignBytes = 64;  // shares of two ranks never meet in one cache line of an aligned buffer

size_t share_count(size_t count, size_t size, DType dtype) {
  const size_t align = kShareAlignBytes / size_of(dtype);
  return std::max(align, ((count + size - 1) / size + align - 1) / align * align);
}

}  // namespace

Status all_reduce_direct(Execution& execution) {
  const Fabric& fabric = execution.fabric;
  const Item& whole = execution.operation.items.front();
  const size_t share = share_count(whole.count, static_cast<size_t>(fabric.size), whole.dtype);
  const auto reduce = Geometry::divided(Pattern::kReduce, fabric.size, whole.count, share);
  std::byte* own_share = whole.out + reduce.share_offset(fabric.rank) * size_of(whole.dtype);

  // In place is safe: a rank writes only its own share of its buffer, which peers read in the second step only. Nobody
  // announces that step before having finished the first, so its end needs no signal of its own.
  const Item into_share{whole.in, own_share, whole.count, whole.dtype, whole.op, whole.scale};
  SHARDCOMM_TRY(run_direct(execution, {reduce, {&into_share, 1}, 0, false}));

  const Item from_share{own_share, whole.out, whole.count, whole.dtype, whole.op, whole.scale};
  const auto gather = Geometry::divided(Pattern::kGather, fabric.size, whole.count, share);
  return run_direct(execution, {gather, {&from_share, 1}, 1});
}

}  // namespace shardcomm
