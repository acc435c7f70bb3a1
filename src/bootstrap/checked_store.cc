#include "bootstrap/checked_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {
namespace {

// Ten years: later deadlines are cut to it, so that adding a little to one stays inside the clock's range.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 10);

Status check_key(std::string_view key, Rank rank) {
  if (rank < 0) return Status(Code::kFailedPrecondition, fmt::format("store key '{}' used before join", key));
  if (key.empty() || key.size() > kKeyLimit) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a store key has 1 to {} bytes, this one has {}", kKeyLimit, key.size()));
  }
  return {};
}

}  // namespace

Status check_place(Rank rank, int world_size) {
  if (world_size < 1) return Status(Code::kInvalidArgument, fmt::format("world size {} is not positive", world_size));
  if (rank < 0 || rank >= world_size) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} is not one of 0 to {}", rank, world_size - 1));
  }
  return {};
}

Deadline deadline_after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + std::min(timeout, kLongest);
}

Status CheckedStore::join(Rank rank, int world_size, const Options& options) {
  SHARDCOMM_TRY(check_place(rank, world_size));
  if (rank_ >= 0) {
    if (rank == rank_ && world_size == world_size_) return {};
    return Status(Code::kFailedPrecondition,
                  fmt::format("the store has joined as rank {} of {} and can not become rank {} of {}", rank_,
                              world_size_, rank, world_size));
  }
  SHARDCOMM_TRY(enter(rank, world_size, options));
  rank_ = rank;
  world_size_ = world_size;
  return {};
}

Status CheckedStore::set(std::string_view key, std::string_view value) {
  SHARDCOMM_TRY(check_key(key, rank_));
  if (value.size() > kValueLimit) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} sets '{}' to {} bytes, a store's value has at most {}",
                                                      rank_, key, value.size(), kValueLimit));
  }
  return keep(key, value);
}

Result<std::string> CheckedStore::get(std::string_view key, Deadline deadline) {
  SHARDCOMM_TRY(check_key(key, rank_));
  return fetch(key, std::min(deadline, deadline_after(kLongest)));
}

}  // namespace shardcomm::bootstrap
