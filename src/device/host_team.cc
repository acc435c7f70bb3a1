#include "device/host_team.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace shardcomm {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 32;
constexpr uint64_t kParts = kPiece - 1;

}  // namespace

HostTeam::~HostTeam() {
  if (!birthplace_.is_here()) {
    (void)new std::vector<std::thread>(std::move(helpers_));  // whose destructor would end the process
    return;
  }
  closing_.store(true, std::memory_order_relaxed);
  ticket_.fetch_add(kPiece, std::memory_order_release);
  ticket_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void HostTeam::start() {
  started_ = true;
  try {
    helpers_.reserve(static_cast<size_t>(size_ - 1));
    for (int i = 1; i < size_; ++i) helpers_.emplace_back([this] { help(); });
  } catch (const std::system_error&) {  // as many as there are, then
  }
}

void HostTeam::run(int parts, Function function, void* context) {
  if (parts > 1 && !started_) start();
  if (parts <= 1 || helpers_.empty()) {
    for (int i = 0; i < parts; ++i) function(context, i);
    return;
  }
  function_ = function;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  uint64_t ticket = (ticket_.load(std::memory_order_relaxed) / kPiece + 1) * kPiece + static_cast<uint64_t>(parts);
  ticket_.store(ticket, std::memory_order_release);
  ticket_.notify_all();
  while (take_part(ticket)) {
  }
  const auto all = static_cast<uint32_t>(parts);
  for (uint32_t seen = 0; (seen = finished_.load(std::memory_order_acquire)) != all;)
    finished_.wait(seen, std::memory_order_acquire);
}

// A part that has been taken holds its piece open, so function_ and context_ stay as they are until it has returned.
bool HostTeam::take_part(uint64_t& ticket) {
  do {
    if ((ticket & kParts) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  function_(context_, static_cast<int>((ticket & kParts) - 1));
  finished_.fetch_add(1, std::memory_order_acq_rel);
  finished_.notify_one();
  ticket = ticket_.load(std::memory_order_acquire);
  return true;
}

void HostTeam::help() {
  pthread_setname_np(pthread_self(), "shardcomm-team");
  uint64_t ticket = 0;
  for (;;) {
    while (take_part(ticket)) {
    }
    if (closing_.load(std::memory_order_relaxed)) return;
    ticket_.wait(ticket, std::memory_order_acquire);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

}  // namespace shardcomm
