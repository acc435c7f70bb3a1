// One call of a collective with its arguments, made ready so that nothing but the call is timed.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "tools/bench/layout.h"

namespace shardcomm::tools {

class BenchCall {
 public:
  // All three must outlive it.
  BenchCall(Communicator& comm, const BenchSpec& spec, const BenchLayout& layout);
  Status place(const std::byte* in, std::byte* out);
  void place(const MosaicWindow& mosaic);  // must outlive the calls
  // On the calling thread; of many tensors, where that can be prepared, as a prepared call.
  Status operator()() const;

  // Of calls that are prepared, for comparison: anew, so that the next run is the first one; without; and as one tensor
  // that is as large as all of them.
  bool is_prepared() const { return prepared_.has_value(); }
  Status prepare();
  Status plain() const;
  Status as_one() const;

 private:
  Status exchange_messages() const;

  Communicator& comm_;
  const BenchSpec& spec_;
  const BenchLayout& layout_;
  const std::byte* in_ = nullptr;  // of the first item
  std::byte* out_ = nullptr;
  const MosaicWindow* mosaic_ = nullptr;  // instead of both
  std::vector<GatherItem> gathers_;
  std::vector<ReduceItem> reductions_;
  std::vector<AllReduceItem> all_reductions_;
  std::vector<BroadcastItem> broadcasts_;
  mutable std::optional<PreparedCall> prepared_;
};

}  // namespace shardcomm::tools
