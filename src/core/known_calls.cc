#include "core/known_calls.h"

#include "base/hash.h"

namespace shardcomm {

void KnownCalls::keep(std::shared_ptr<KnownCall> call) {
  const size_t bytes = call->bytes(ranks_);
  if (bytes > kMostBytes) return;
  if (bytes_ + bytes > kMostBytes) {
    calls_.clear();
    bytes_ = 0;
  }
  const Ends ends{call->items.front(), call->items.back(), call->items.size()};
  auto& place = calls_[key(call->operation.call().collective, ends, call->label)];
  if (place != nullptr) bytes_ -= place->bytes(ranks_);
  bytes_ += bytes;
  place = std::move(call);
}

uint64_t KnownCalls::key(Collective collective, const Ends& ends, std::string_view label) noexcept {
  const uint64_t words[] = {static_cast<uint64_t>(collective), ends.items, reinterpret_cast<uint64_t>(ends.first.in),
                            reinterpret_cast<uint64_t>(ends.first.out), reinterpret_cast<uint64_t>(ends.last.out)};
  return hash_bytes(words, sizeof words, hash_text(label));
}

}  // namespace shardcomm
