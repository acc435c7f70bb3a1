// A transport whose bytes move through queues: a thread of the owner reads its memory for the peer that asks. Nothing
// of a peer is mapped but what map() is asked for, and that only by MappedControl.
#pragma once
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace shardcomm::testing {

// What all ranks of one communicator share.
class ByteNetwork {
 public:
  explicit ByteNetwork(int size);
  ~ByteNetwork();

  // `bytes` of the memory of `owner`, as its thread reads them.
  std::vector<std::byte> fetch(Rank owner, uint64_t address, size_t bytes);
  uint64_t bytes_moved() const noexcept { return bytes_moved_.load(); }

 private:
  struct Server;
  std::vector<std::unique_ptr<Server>> servers_;  // by rank
  std::atomic<uint64_t> bytes_moved_{0};
};

class QueueTransport final : public MappedTransport {
 public:
  explicit QueueTransport(ByteNetwork& network) : network_(network) {}
  std::string_view name() const noexcept override { return "queue"; }
  TransportKind kind() const noexcept override { return TransportKind::kMapped; }
  Result<Card> card() override { return Card("queue"); }
  std::vector<Status> connect(Rank rank, std::span<const Card> cards_by_rank, Deadline deadline) override;
  std::vector<Rank> ended_peers() override { return {}; }
  Result<Registration> enroll(const Allocation& memory) override;
  Result<Card> share(const Allocation& memory) override;
  Result<MappedMemory> map_from(Rank peer, const Card& shared) override;
  bool same_process(Rank peer) const noexcept override { return peer == rank_; }
  Status can_attach(Rank) const override { return {}; }
  Status read(Rank peer, void* target, uint64_t address, size_t bytes) override;

 private:
  ByteNetwork& network_;
  Rank rank_ = 0;
};

}  // namespace shardcomm::testing
