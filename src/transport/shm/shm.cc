#include "transport/shm/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <variant>

#include "base/pod.h"

namespace shardcomm {
namespace {

// Becomes readable when the process ends. Owns its descriptor.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  explicit ProcessHandle(int fd) : fd_(fd) {}
  ProcessHandle(ProcessHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ProcessHandle& operator=(ProcessHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ProcessHandle() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const noexcept { return fd_; }

  static Result<ProcessHandle> open(int32_t pid, Rank rank) {
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd >= 0) return ProcessHandle(fd);
    if (errno == ESRCH) {
      return Status(Code::kUnavailable,
                    fmt::format("rank {} is process {}, which is not to be found here (it is in another "
                                "container or node, or has ended)",
                                rank, pid));
    }
    return Status::native(Origin::kErrno, errno, fmt::format("pidfd_open process {} of rank {}", pid, rank));
  }

 private:
  int fd_ = -1;
};

template <class T>
Result<T> from_card(const Card& card, Rank rank) {
  if (const std::optional<T> value = from_bytes<T>(card)) return *value;
  return Status(Code::kFailedPrecondition, fmt::format("rank {} sent a card of {} bytes", rank, card.size()));
}

class ShmTransport final : public MappedTransport {
 public:
  std::string_view name() const noexcept override { return "shm"; }
  TransportKind kind() const noexcept override { return TransportKind::kMapped; }
  Result<Card> card() override { return Card(as_bytes(attach_card())); }

  std::vector<Status> connect(Rank rank, std::span<const Card> cards_by_rank, Deadline) override {
    std::vector<Status> reached;
    for (Rank r = 0; r < static_cast<Rank>(cards_by_rank.size()); ++r) {
      Result<Peer> peer = meet(rank, r, cards_by_rank[static_cast<size_t>(r)]);
      reached.push_back(peer.status());
      peers_.push_back(peer.ok() ? std::move(peer).value() : Peer());
    }
    return reached;
  }

  std::vector<Rank> ended_peers() override {
    std::vector<pollfd> polls;
    std::vector<Rank> ranks;
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (peers_[r].process.fd() < 0) continue;
      polls.push_back({peers_[r].process.fd(), POLLIN, 0});
      ranks.push_back(static_cast<Rank>(r));
    }
    std::vector<Rank> ended;
    if (polls.empty() || poll(polls.data(), polls.size(), 0) <= 0) return ended;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) ended.push_back(ranks[i]);
    }
    return ended;
  }

  // Peers read ordinary memory by cross-memory attach or from the staging ring; neither needs to know it before.
  Result<Registration> enroll(const Allocation&) override { return Registration(); }

  Result<Card> share(const Allocation& memory) override {
    if (const auto* segment = std::get_if<SegmentCard>(&memory.handle)) return Card(as_bytes(*segment));
    return Status(Code::kUnsupported, "shm shares the memory of segments only: no other process can open what this is");
  }

  Result<MappedMemory> map_from(Rank peer, const Card& shared) override {
    SHARDCOMM_TRY_ASSIGN(const auto card, from_card<SegmentCard>(shared, peer));
    SHARDCOMM_TRY_ASSIGN(SegmentView view, map_segment(card));
    std::byte* const base = view.data();
    return MappedMemory{base, std::make_shared<SegmentView>(std::move(view))};
  }

  bool same_process(Rank peer) const noexcept override { return peers_[static_cast<size_t>(peer)].same_process; }
  Status can_attach(Rank peer) const override { return peers_[static_cast<size_t>(peer)].attach; }

  Status read(Rank peer, void* target, uint64_t address, size_t bytes) override {
    const Status status = read_peer(peers_[static_cast<size_t>(peer)].pid, target, address, bytes);
    return status.ok() ? status : status.context(fmt::format("reading {} bytes of rank {}", bytes, peer));
  }

 private:
  struct Peer {
    int32_t pid = 0;
    bool same_process = false;
    Status attach;
    ProcessHandle process;  // none for threads of this process
  };

  static Result<Peer> meet(Rank self, Rank rank, const Card& card) {
    SHARDCOMM_TRY_ASSIGN(const auto attach, from_card<AttachCard>(card, rank));
    Peer peer;
    peer.pid = attach.pid;
    peer.same_process = rank == self || attach.process == process_token();
    if (peer.same_process) return peer;
    SHARDCOMM_TRY_ASSIGN(peer.process, ProcessHandle::open(attach.pid, rank));
    peer.attach = probe_peer_read(attach);
    return peer;
  }

  std::vector<Peer> peers_;
};

}  // namespace

Status probe_shm(Device device) {
  if (device.kind != Device::Kind::kHost) return Status(Code::kUnsupported, "shm moves host memory only");
  return Segment::create(1, "a probe of shared memory").status();
}

Result<std::unique_ptr<Transport>> open_shm(Device, const Options&) {
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>());
}

}  // namespace shardcomm
