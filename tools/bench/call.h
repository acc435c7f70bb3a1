// One call of a collective with its arguments, made ready so that nothing but the call is timed.
#pragma once
#include <cstddef>
#include <vector>

#include "tools/bench/layout.h"

namespace shardcomm::tools {

class BenchCall {
 public:
  // All three must outlive it.
  BenchCall(Communicator& comm, const BenchSpec& spec, const BenchLayout& layout);
  void place(const std::byte* in, std::byte* out);
  void place(const MosaicWindow& mosaic);  // must outlive the calls
  Status operator()() const;               // on the calling thread

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
};

}  // namespace shardcomm::tools
