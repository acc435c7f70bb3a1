// The door of src/transport. There are three kinds of transport, because there are three ways in which bytes move:
//   Mapped    the peer's memory can be loaded                  (shm, p2p)      -> kernels move them
//   Put       the peer's memory can only be written by a post  (ib, ucx)       -> the progress thread moves them
//   Delegate  another library runs the whole collective        (nccl)          -> it moves them
// This version has one row, shm. A transport of another kind is a class beside MappedTransport and a row of
// transports().
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/memory.h"
#include "shardcomm/options.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"
#include "transport/peer_mapping.h"

namespace shardcomm {

enum class TransportKind : uint8_t { kMapped, kPut, kDelegate };

using Card = std::string;                          // bytes a peer needs to reach us; opaque above this layer
using Registration = std::shared_ptr<const void>;  // ends with its last reference; keeps alive what it needs

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual TransportKind kind() const noexcept = 0;
  virtual Result<Card> card() = 0;  // exchanged once, before connect
  // Connects to every rank that it can. By rank: ok, or why that rank cannot be reached.
  virtual std::vector<Status> connect(Rank rank, std::span<const Card> cards_by_rank, Deadline deadline) = 0;
  // Peers whose processes have ended. One system call, so cheap enough for a wait that sleeps; any thread.
  virtual std::vector<Rank> ended_peers() = 0;
  // Makes memory of this rank known to the transport before peers reach it, where it must be pinned or registered.
  // Gives null where this transport needs nothing of the kind.
  virtual Result<Registration> enroll(const Allocation& memory) = 0;
};

// Peers' memory as addresses of ours.
class MappedTransport : public Transport {
 public:
  // kUnsupported for memory that no other process can open.
  virtual Result<Card> share(const Allocation& memory) = 0;
  // What a peer, or this rank itself, has shared.
  virtual Result<MappedMemory> map_from(Rank peer, const Card& shared) = 0;
  Result<PeerMapping> map(std::span<const Card> shared_by_rank);  // what every rank has shared
  virtual bool same_process(Rank peer) const noexcept = 0;        // its pointers are valid here as they are
  virtual Status can_attach(Rank peer) const = 0;                 // ok: read() works on any memory of the peer
  virtual Status read(Rank peer, void* target, uint64_t address, size_t bytes) = 0;
};

// A row per backend built in. probe() says why not, if not: "memfd_create: not permitted". open() gives a transport
// of the row's kind.
struct TransportEntry {
  std::string_view name;
  TransportKind kind;
  Status (*probe)(Device device);
  Result<std::unique_ptr<Transport>> (*open)(Device device, const Options& options);
};
std::span<const TransportEntry> transports() noexcept;

}  // namespace shardcomm

#include "transport/fabric.h"  // the rest of the door: a transport, connected for one communicator
#include "transport/pairs.h"
