// The door of src/transport. Three kinds, because there are three ways bytes move:
//   Mapped    the peer's memory can be loaded                  (shm, p2p)      -> kernels do the moving
//   Put       the peer's memory can only be written by a post  (ib, ucx)       -> the progress thread does
//   Delegate  someone else runs the whole collective           (nccl)          -> nothing is ours to move
// This version has one row, shm. The other kinds join as interfaces beside MappedTransport and as rows of transports().
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/memory.h"
#include "shardcomm/options.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

enum class TransportKind : uint8_t { kMapped, kPut, kDelegate };

struct Capabilities {
  TransportKind kind;
  bool host_memory, cuda_memory;
  bool crosses_nodes;
};

using Card = std::string;  // bytes a peer needs to reach us; opaque above this layer

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual Capabilities capabilities() const noexcept = 0;
  virtual Result<Card> card() = 0;  // exchanged once, before connect
  // Connects to every rank or says which one cannot be reached and why.
  virtual Status connect(Rank rank, std::span<const Card> cards_by_rank, Deadline deadline) = 0;
  // Peers whose processes have ended. One system call, so cheap enough for a wait that sleeps; any thread.
  virtual std::vector<Rank> ended_peers() = 0;
};

// Peers' memory as addresses of ours.
class MappedTransport : public Transport {
 public:
  struct Mapping {
    std::vector<std::byte*> by_rank;  // own memory at [rank]
    std::vector<SegmentView> views;   // keeps the mappings alive
  };
  virtual Result<Card> share(const Segment& local) = 0;
  virtual Result<Mapping> map(std::span<const Card> shared_by_rank) = 0;
  virtual bool same_process(Rank peer) const noexcept = 0;  // its pointers are valid here as they are
  virtual Status can_attach(Rank peer) const = 0;           // ok: read() works on any memory of the peer
  virtual Status read(Rank peer, void* target, uint64_t address, size_t bytes) = 0;
};

// One row per backend built in. probe() says why not, if not: "memfd_create: not permitted".
struct TransportEntry {
  std::string_view name;
  Status (*probe)(Device device);
  Result<std::unique_ptr<MappedTransport>> (*open)(Device device, const Options& options);
};
std::span<const TransportEntry> transports() noexcept;

}  // namespace shardcomm

#include "transport/fabric.h"  // the other half of the door: everything above, connected for one communicator
