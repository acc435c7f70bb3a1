#include "tests/transport/queue_transport.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/pod.h"

namespace shardcomm::testing {

struct ByteNetwork::Server {
  struct Request {
    uint64_t address;
    size_t bytes;
    std::promise<std::vector<std::byte>> reply;
  };
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Request> requests;
  bool stops = false;
  std::thread thread{[this] { serve(); }};

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      arrived.wait(lock, [&] { return stops || !requests.empty(); });
      if (requests.empty()) return;
      Request request = std::move(requests.front());
      requests.pop_front();
      const auto* begin = reinterpret_cast<const std::byte*>(request.address);
      request.reply.set_value(std::vector(begin, begin + request.bytes));
    }
  }
};

ByteNetwork::ByteNetwork(int size) {
  for (int r = 0; r < size; ++r) servers_.push_back(std::make_unique<Server>());
}

ByteNetwork::~ByteNetwork() {
  for (const auto& server : servers_) {
    {
      std::lock_guard lock(server->mutex);
      server->stops = true;
    }
    server->arrived.notify_all();
    server->thread.join();
  }
}

std::vector<std::byte> ByteNetwork::fetch(Rank owner, uint64_t address, size_t bytes) {
  Server& server = *servers_[static_cast<size_t>(owner)];
  Server::Request request{address, bytes, {}};
  std::future<std::vector<std::byte>> reply = request.reply.get_future();
  {
    std::lock_guard lock(server.mutex);
    server.requests.push_back(std::move(request));
  }
  server.arrived.notify_all();
  bytes_moved_ += bytes;
  return reply.get();
}

std::vector<Status> QueueTransport::connect(Rank rank, std::span<const Card> cards_by_rank, Deadline) {
  rank_ = rank;
  return std::vector<Status>(cards_by_rank.size());
}

Result<Registration> QueueTransport::enroll(const Allocation& memory) {
  if (memory.bytes == 13) return Status(Code::kOutOfMemory, "13 bytes cannot be enrolled");
  return Registration(std::make_shared<Allocation>(memory));
}

Result<Card> QueueTransport::share(const Allocation& memory) {
  return Card(as_bytes(std::get<SegmentCard>(memory.handle)));
}

Result<MappedMemory> QueueTransport::map_from(Rank, const Card& shared) {
  SHARDCOMM_TRY_ASSIGN(SegmentView view, map_segment(*from_bytes<SegmentCard>(shared)));
  std::byte* const base = view.data();
  return MappedMemory{base, std::make_shared<SegmentView>(std::move(view))};
}

Status QueueTransport::read(Rank peer, void* target, uint64_t address, size_t bytes) {
  const std::vector<std::byte> fetched = network_.fetch(peer, address, bytes);
  if (bytes != 0) std::memcpy(target, fetched.data(), bytes);
  return {};
}

}  // namespace shardcomm::testing
