// A call as the engines see it: its tensors, the signature that ranks compare, and what the planner takes.
#pragma once
#include <chrono>
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
  double scale = 1;  // of what is reduced
  bool operator==(const Item&) const = default;
};

struct PreparedOperation;
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
  std::chrono::milliseconds timeout{};          // of this rank's waiting; zero: the communicator's
  std::shared_ptr<PreparedOperation> prepared;  // whose operation this is; null: it is made once
  Signature signature;
  // Derived from the fields above, like the rest of the signature, by prepare().
  Workload workload = {};
  size_t item_bytes = 0;  // of item.count elements, over all items
};
// `size`: of the communicator. The workload's memory is kMosaic or kMapped: all ranks must choose a row alike, though
// each may bring other memory.
void prepare(Operation& operation, int size) noexcept;

// An operation that is made again and again, with its own list of tensors.
struct PreparedOperation {
  PreparedOperation(Collective collective, std::vector<Item> tensors, std::string_view name)
      : items(std::move(tensors)), label(name), operation({.collective = collective}, items, label) {}
  PreparedOperation(const PreparedOperation&) = delete;
  PreparedOperation& operator=(const PreparedOperation&) = delete;

  const std::vector<Item> items;
  const std::string label;
  Operation operation;                 // of these; constant once prepare() has been called for it
  std::shared_ptr<CallTables> tables;  // the engine's, which runs one operation at a time
};

}  // namespace shardcomm
