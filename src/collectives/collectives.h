// The door of src/collectives. An algorithm is a function and a row, not a class. All of them are instances of one
// idea: every rank announces what it does and where its bytes are, everybody checks that all agree, and then each rank
// takes what is its own from its peers' memory. Who takes what is a value (geometry.h).
#pragma once
#include <array>
#include <memory>
#include <optional>
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
  // `what`: its collective, kind and root; prepare() finds the rest.
  Operation(const Call& what, std::span<const Item> tensors, std::string_view name) noexcept
      : items(tensors), label(name), signature{.call = what} {}
  const Call& call() const noexcept { return signature.call; }

  std::span<const Item> items;     // one; none for a barrier; many for the _many forms
  std::span<const size_t> counts;  // ragged forms only
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

struct CallTables;

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

// The engines' working memory. Whoever executes operations owns one, runs one operation at a time with it, and keeps it
// for the next, so that operations that repeat allocate nothing. It holds a table of at most 64 rows and, once a
// reduction has attached memory, at most attach_chunk_bytes for each rank and each thread of the team.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  struct Buffers;  // scratch.h
  Buffers& buffers() noexcept { return *buffers_; }

 private:
  const std::unique_ptr<Buffers> buffers_;
};

// One operation as it runs, filled by name.
struct Execution {
  const Operation& operation;
  Fabric& fabric;

  StreamRef stream;  // all kernels are launched on it
  HostTeam& team;    // its threads help with large pieces
  Scratch& scratch;
  std::span<const Rank> reading_order;  // of the sources of a gather; this rank first
  size_t attach_chunk_bytes;            // how much of a source is attached at a time, before it is combined
  size_t node_bytes;                    // whole buffers of all ranks together, which compete for the caches

  TimeLimit& limit;          // of every wait
  TrafficCounters& traffic;  // the engines add what they move

  SourceLookup sources{*fabric.windows};
};

// A way to move bytes, whatever the collective.
struct Engine {
  std::string_view name;               // "direct"
  std::optional<TransportKind> needs;  // none: the bytes travel in the announcements, which every transport has
  Status (*run)(Execution& execution);
};

// A row of the registry: a collective, an engine that can carry it out, and what that costs.
struct Algorithm {
  Collective collective;
  const Engine* engine;
  CostFunction cost;
  Status run(Execution& execution) const { return engine->run(execution); }
};
std::span<const Algorithm> algorithms() noexcept;  // those of one collective stand together
std::string name(const Algorithm& algorithm);      // "all_gather_many_direct"

// Chooses rows for one communicator, the same on every rank, and remembers by shape. One operation at a time.
class Chooser {
 public:
  // Candidates are the rows that `transport` can run. `allowed`: engines ("direct") or names of rows, separated by
  // commas; the others are candidates only where none of these can run, or when it is empty. kInvalidArgument lists
  // what there is.
  static Result<Chooser> create(Site site, TransportKind transport, std::string_view allowed);
  // Allocates nothing. Where no row can run it: one that fails with kUnsupported.
  const Algorithm& choose(const Workload& workload) noexcept;
  CollectivePlan explain(const Workload& workload) const;

 private:
  struct Memory {
    Workload workload;
    const Algorithm* algorithm = nullptr;
  };
  // Rows of one collective, as the planner takes them.
  struct Rows {
    std::vector<const Algorithm*> algorithms;
    std::vector<Candidate> candidates;  // the same
    void add(const Algorithm& row);
  };
  explicit Chooser(Site site) : site_(std::move(site)) {}
  const Rows& candidates(const Workload& workload) const noexcept;

  Site site_;
  std::array<Rows, kCollectiveCount> all_, allowed_;  // allowed_ is empty where everything is allowed
  std::array<Memory, 16> remembered_;                 // by a hash of the shape
};

}  // namespace shardcomm
