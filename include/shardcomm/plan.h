// What will be done, as plain values: no pointers, no handles, equal on every rank.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/collective.h"
#include "shardcomm/options.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// The nodes that ranks live on. Links between them join when there is more than one node to plan for.
struct SHARDCOMM_EXPORT Topology {
  int world_size = 1;
  std::vector<int> node_of;  // node index by rank
  int cores_per_node = 1;    // processing units that the ranks of a node share
  static Topology single_node(int world_size, int cores);
};

// How the bytes a peer reads are offered, from fastest to slowest.
enum class SourceKind : uint8_t {
  kInline,    // inside the signal's own message: small payloads
  kMapped,    // a window, or any memory of a rank that is a thread of the same process: read in place
  kAttached,  // ordinary memory of another process, read by cross-memory attach
  kStaged,    // ordinary memory, copied through the shared staging ring
  kMosaic,    // a mosaic window: read where it lies, by whoever needs it
};
SHARDCOMM_EXPORT std::string_view name(SourceKind kind) noexcept;

// What the machine does, as the costs of algorithms need it. Bandwidths are those of one rank while all ranks move
// bytes. The defaults are typical of a small x86 server; `shardcomm bench --tune FILE` measures this machine, and the
// option tune_file reads the file back. What is optional has no default: machines differ too much there.
struct SHARDCOMM_EXPORT MachineModel {
  double signal_us = 0.15;        // one cache line's way from core to core
  double switch_us = 3;           // from one rank to the next on the same core, where ranks outnumber cores
  double lookup_us = 0.05;        // to find where one peer's bytes are, of a rank that reads them in place
  double cached_gbs = 12;         // copies that stay in the caches
  double memory_gbs = 8;          // copies that do not
  double attach_us = 0.5;         // one call of cross-memory attach
  double cache_bytes = 12 << 20;  // traffic of all ranks together that still counts as cached
  // Nothing where not measured. Ranks that choose by them and lack one measure both, roughly, when they meet.
  std::optional<double> attach_gbs;  // copies by cross-memory attach
  std::optional<double> staged_gbs;  // copies through the staging ring, both of them together
  std::string to_json() const;       // without what was not measured
  // kInvalidArgument names the key that is unknown, missing though not optional, or no positive number.
  static Result<MachineModel> parse(std::string_view json);
};

struct Shape {
  Collective collective = Collective::kBarrier;
  // Elements per shard (all_reduce, broadcast, reduce: of the whole; all_to_all_v: of each pair, as if all were equal).
  size_t count = 0;
  DType dtype = DType::kU8;
  SourceKind memory = SourceKind::kMapped;  // where the buffers lie; kAttached and kStaged: in ordinary memory
};

struct SHARDCOMM_EXPORT CollectivePlan {
  std::string algorithm;  // a row of src/collectives/registry.cc
  std::string transport;
  SourceKind source = SourceKind::kMapped;
  size_t chunk_bytes = 0;
  double predicted_us = 0;
  std::string reason;  // one sentence: what it beat, by whose figures
  std::string to_text() const;
};

}  // namespace shardcomm
