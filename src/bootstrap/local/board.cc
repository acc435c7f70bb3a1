#include "bootstrap/local/board.h"

#include <fmt/format.h>

#include <map>

namespace shardcomm::bootstrap {

Status LocalBoard::admit(Rank rank, int world_size) {
  const std::lock_guard lock(mutex_);
  SHARDCOMM_TRY(roster_.failure());
  Status admitted = roster_.admit(rank, world_size, "a thread of this process");
  if (!roster_.failure().ok()) fail_waiters();
  return admitted;
}

void LocalBoard::leave(Rank rank) {
  const std::lock_guard lock(mutex_);
  roster_.leave(rank);
}

Status LocalBoard::set(std::string_view key, std::string_view value) {
  auto kept = std::make_shared<const std::string>(value);
  const std::lock_guard lock(mutex_);
  if (!values_.emplace(key, std::move(kept)).second)
    return Status(Code::kFailedPrecondition, fmt::format("store key '{}' is already set", key));
  if (const auto waiting = waiters_.find(std::string(key)); waiting != waiters_.end())
    waiting->second.changed.notify_all();
  return {};
}

Result<std::string> LocalBoard::get(std::string_view key, Deadline deadline) {
  const std::string name(key);
  std::unique_lock lock(mutex_);
  std::shared_ptr<const std::string> value;
  const auto settled = [&] {
    const auto found = values_.find(name);
    if (found != values_.end()) value = found->second;
    return value != nullptr || !roster_.failure().ok();
  };
  if (!settled() && std::chrono::steady_clock::now() < deadline) {
    Waiters& mine = waiters_[name];  // stays where it is while count > 0
    ++mine.count;
    mine.changed.wait_until(lock, deadline, settled);
    if (--mine.count == 0) waiters_.erase(name);
  }
  if (value != nullptr) {
    lock.unlock();  // large values are copied without the lock
    return *value;
  }
  if (!roster_.failure().ok()) return roster_.failure();
  return roster_.timed_out(key);
}

void LocalBoard::forget(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  for (const std::string& key : keys) values_.erase(key);
}

void LocalBoard::fail_waiters() {
  for (auto& [key, waiting] : waiters_) waiting.changed.notify_all();
}

std::shared_ptr<LocalBoard> local_board(const std::string& name) {
  static std::mutex mutex;
  // Never destroyed, so that stores may still be opened while the process ends.
  static auto* const boards = new std::map<std::string, std::weak_ptr<LocalBoard>>;
  const std::lock_guard lock(mutex);
  std::erase_if(*boards, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<LocalBoard>& slot = (*boards)[name];
  std::shared_ptr<LocalBoard> board = slot.lock();
  if (board == nullptr) slot = board = std::make_shared<LocalBoard>();
  return board;
}

}  // namespace shardcomm::bootstrap
