// A call as the engines see it: its tensors, the signature that ranks compare, and what the planner takes.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/planner.h"
#include "transport/transport.h"

namespace shardcomm {

// A tensor of an operation. count: elements per shard (all_reduce, broadcast: of the whole; ragged forms: unused).
struct Item {
  const std::byte* in;
  std::byte* out;
  size_t count;
  DType dtype;
  ReduceOp op;
  bool operator==(const Item&) const = default;
};

struct KnownCall;
struct CallTables;  // call_tables.h

// A checked call, the same on every rank but for the addresses.
struct Operation {
  // `what`: its collective, kind and root; prepare() finds the rest.
  Operation(const Call& what, std::span<const Item> tensors, std::string_view name) noexcept
      : items(tensors), label(name), signature{.call = what} {}
  const Call& call() const noexcept { return signature.call; }

  std::span<const Item> items;         // one; none for a barrier; many for the _many forms
  std::span<const size_t> counts;      // ragged forms: by rank; all_to_all_v: what this rank gives to each rank
  std::span<const size_t> out_counts;  // all_to_all_v: what it expects of each
  std::string_view label;
  uint64_t epoch = 0;
  std::shared_ptr<KnownCall> known;  // made before, and prepared; null: not known
  Signature signature;
  // Derived from the fields above, like the rest of the signature, by prepare().
  Workload workload = {};
  size_t item_bytes = 0;  // of item.count elements, over all items
};
// `size`: of the communicator. The workload's memory is kMosaic or kMapped: all ranks must choose a row alike, though
// each may bring other memory.
void prepare(Operation& operation, int size) noexcept;

// A call of many tensors, kept for when it comes again, as a model's do in every step.
struct KnownCall {
  KnownCall(Collective collective, std::vector<Item> tensors, std::string_view name)
      : items(std::move(tensors)), label(name), operation({.collective = collective}, items, label) {}
  KnownCall(const KnownCall&) = delete;
  KnownCall& operator=(const KnownCall&) = delete;
  size_t bytes(int size) const noexcept;  // it takes at most, on so many ranks

  const std::vector<Item> items;
  const std::string label;
  Operation operation;                 // of these; prepared once it has been submitted, and constant from then on
  std::shared_ptr<CallTables> tables;  // the engine's, who runs one operation at a time
};

}  // namespace shardcomm
