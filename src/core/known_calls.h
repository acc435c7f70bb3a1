// The calls of many tensors that a communicator has made. A model's come again in every step, each with the tensors it
// had before; then nothing is checked, summed up or looked for again, only compared.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include "collectives/collectives.h"
#include "shardcomm/communicator.h"

namespace shardcomm {

inline Item item_of(const GatherItem& given) noexcept {
  return {static_cast<const std::byte*>(given.shard), static_cast<std::byte*>(given.full), given.count, given.dtype,
          ReduceOp::kSum};
}
inline Item item_of(const ReduceItem& given) noexcept {
  return {static_cast<const std::byte*>(given.full), static_cast<std::byte*>(given.shard), given.count, given.dtype,
          given.op};
}

// Not thread-safe. Of calls with one label that begin and end with the same tensors it knows the last one.
class KnownCalls {
 public:
  explicit KnownCalls(int ranks) noexcept : ranks_(ranks) {}

  // One that was given all of this; null: none.
  template <class Given>
  std::shared_ptr<KnownCall> find(Collective collective, std::span<const Given> given,
                                  std::string_view label) const noexcept {
    if (!is_worth_it(given.size())) return nullptr;
    const Ends ends{item_of(given.front()), item_of(given.back()), given.size()};
    const auto found = calls_.find(key(collective, ends, label));
    if (found == calls_.end()) return nullptr;
    const KnownCall& call = *found->second;
    const bool same = call.operation.call().collective == collective && call.label == label &&
                      std::equal(given.begin(), given.end(), call.items.begin(), call.items.end(),
                                 [](const Given& one, const Item& item) { return item_of(one) == item; });
    return same ? found->second : nullptr;
  }
  // `call` has been submitted, and is worth it.
  void keep(std::shared_ptr<KnownCall> call);
  // Fewer tensors are as quickly looked at as compared.
  static bool is_worth_it(size_t items) noexcept { return items >= kFewest; }

 private:
  struct Ends {
    Item first, last;
    size_t items;
  };
  static constexpr size_t kFewest = 16;
  // Of what all calls keep together; beyond, all are forgotten.
  static constexpr size_t kMostBytes = 16 << 20;

  static uint64_t key(Collective collective, const Ends& ends, std::string_view label) noexcept;

  const int ranks_;
  std::unordered_map<uint64_t, std::shared_ptr<KnownCall>> calls_;
  size_t bytes_ = 0;  // of them, the engine's tables included
};

}  // namespace shardcomm
