#include "transport/shm/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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
Card to_card(const T& value) {
  return Card(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
Result<T> from_card(const Card& card, Rank rank) {
  if (card.size() != sizeof(T))
    return Status(Code::kFailedPrecondition, fmt::format("rank {} sent a card of {} bytes", rank, card.size()));
  T value;
  std::memcpy(&value, card.data(), sizeof value);
  return value;
}

class ShmTransport final : public MappedTransport {
 public:
  std::string_view name() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override { return {TransportKind::kMapped, true, false, false}; }
  Result<Card> card() override { return to_card(attach_card()); }

  Status connect(Rank rank, std::span<const Card> cards_by_rank, Deadline) override {
    for (Rank r = 0; r < static_cast<Rank>(cards_by_rank.size()); ++r) {
      SHARDCOMM_TRY_ASSIGN(Peer peer, meet(rank, r, cards_by_rank[static_cast<size_t>(r)]));
      peers_.push_back(std::move(peer));
    }
    return {};
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

  Result<Card> share(const Segment& local) override { return to_card(local.card()); }

  Result<Mapping> map(std::span<const Card> shared_by_rank) override {
    Mapping mapping;
    for (Rank r = 0; r < static_cast<Rank>(shared_by_rank.size()); ++r) {
      SHARDCOMM_TRY_ASSIGN(const auto card, from_card<SegmentCard>(shared_by_rank[static_cast<size_t>(r)], r));
      Result<SegmentView> view = map_segment(card);
      if (!view.ok()) return view.status().context(fmt::format("mapping memory of rank {}", r));
      mapping.by_rank.push_back(view->data());
      mapping.views.push_back(std::move(view).value());
    }
    return mapping;
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

Result<std::unique_ptr<MappedTransport>> open_shm(Device, const Options&) {
  return std::unique_ptr<MappedTransport>(std::make_unique<ShmTransport>());
}

}  // namespace shardcomm
