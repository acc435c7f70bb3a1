// The door of src/collectives. An algorithm is a function and a row, not a class. All of them are instances of one
// idea: every rank announces what it does and where its bytes are, everybody checks that all agree, and then each rank
// takes what is its own from its peers' memory. Who takes what is a value (geometry.h).
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "planner/planner.h"
#include "shardcomm/communicator.h"
#include "transport/transport.h"

namespace shardcomm {

// One tensor of an operation. count: elements per shard (all_reduce, broadcast: of the whole; ragged forms: unused).
struct Item {
  const std::byte* in;
  std::byte* out;
  size_t count;
  DType dtype;
  ReduceOp op;
  bool operator==(const Item&) const = default;
};

struct KnownCall;

// A checked call, the same on every rank but for the addresses.
struct Operation {
  Operation(Collective which, std::span<const Item> tensors, std::string_view name) noexcept
      : collective(which), items(tensors), label(name) {}

  Collective collective;
  Rank root = 0;
  std::span<const Item> items;     // one; none for a barrier; many for the _many forms
  std::span<const size_t> counts;  // ragged forms only
  std::string_view label;
  uint64_t epoch = 0;
  bool mosaic = false;               // all_gather of a mosaic window
  std::shared_ptr<KnownCall> known;  // made before, and prepared; null: not known
  // What all of the above come to, by prepare().
  Signature signature = {};
  Workload workload = {};
  size_t item_bytes = 0;  // of item.count elements, over all items
};
// `size`: of the communicator. The workload's memory is kMosaic or kMapped: all ranks must choose a row alike, though
// each may bring other memory.
void prepare(Operation& operation, int size) noexcept;

struct Placement;

// A call of many tensors, kept for when it comes again, as a model's do in every step.
struct KnownCall {
  KnownCall(Collective collective, std::vector<Item> tensors, std::string_view name)
      : items(std::move(tensors)), label(name), operation(collective, items, label) {}
  KnownCall(const KnownCall&) = delete;
  KnownCall& operator=(const KnownCall&) = delete;
  size_t bytes(int size) const noexcept;  // it takes at most, on so many ranks

  const std::vector<Item> items;
  const std::string label;
  Operation operation;                   // of these; prepared once it has been submitted, and constant from then on
  std::shared_ptr<Placement> placement;  // the engine's, who runs one operation at a time
};

struct Execution {
  Fabric& fabric;
  const Operation& operation;
  TimeLimit& limit;
  TrafficCounters& traffic;
  size_t chunk_bytes;                   // of pieces read by cross-memory attach
  size_t footprint_bytes;               // of the operation, on all ranks together
  std::span<const Rank> reading_order;  // of the sources of a gather; this rank first
  HostTeam& team;                       // threads that help with large pieces
  SourceLookup sources{fabric};
};

struct Algorithm {
  std::string_view name;
  Collective collective;
  TransportKind needs;
  CostFunction cost;
  Status (*run)(Execution& execution);
};
std::span<const Algorithm> algorithms() noexcept;

// Chooses rows for one communicator, the same on every rank, and remembers by shape. One operation at a time.
class Chooser {
 public:
  // `allowed`: engines ("direct") or names of rows, separated by commas; where none of them can run, and when empty,
  // all rows are candidates. kInvalidArgument lists what there is.
  static Result<Chooser> create(Site site, std::string_view allowed);
  const Algorithm& choose(const Workload& workload) noexcept;  // allocates nothing
  CollectivePlan explain(const Workload& workload) const;

 private:
  struct Memory {
    Workload workload;
    const Algorithm* algorithm = nullptr;
  };
  explicit Chooser(Site site) : site_(std::move(site)) {}
  struct Rows;
  Rows candidates(const Workload& workload) const noexcept;

  Site site_;
  std::vector<bool> allowed_;          // by row; empty: all
  std::array<Memory, 16> remembered_;  // by a hash of the shape
};

}  // namespace shardcomm
