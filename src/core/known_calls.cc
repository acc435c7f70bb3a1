#include "core/known_calls.h"

namespace shardcomm {

void KnownCalls::keep(std::shared_ptr<KnownCall> call) {
  const size_t bytes = call->bytes(ranks_);
  if (bytes > kMostBytes) return;
  if (bytes_ + bytes > kMostBytes) {
    calls_.clear();
    bytes_ = 0;
  }
  const Ends ends{call->items.front(), call->items.back(), call->items.size()};
  auto& place = calls_[key(call->operation.collective, ends, call->label)];
  if (place != nullptr) bytes_ -= place->bytes(ranks_);
  bytes_ += bytes;
  place = std::move(call);
}

uint64_t KnownCalls::key(Collective collective, const Ends& ends, std::string_view label) noexcept {
  uint64_t key = static_cast<uint64_t>(collective);
  for (const uint64_t word : {reinterpret_cast<uint64_t>(ends.first.in), reinterpret_cast<uint64_t>(ends.first.out),
                              reinterpret_cast<uint64_t>(ends.last.out), uint64_t{ends.items},
                              uint64_t{std::hash<std::string_view>()(label)}}) {
    key = (key ^ word) * 0x9e3779b97f4a7c15;
    key ^= key >> 32;
  }
  return key;
}

}  // namespace shardcomm
